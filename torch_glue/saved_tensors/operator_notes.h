// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "torch_glue/saved_tensors/random_start.h"

#include <ATen/core/Tensor.h>
#include <c10/util/SmallVector.h>
#include <torch/csrc/autograd/function.h>

#include <cstdint>
#include <memory>
#include <optional>

namespace spillway {

class PackHook;
class Recipe;

/// Arguments of an operator that its node does not save, for the few operators whose recomputation
/// needs them. Written while the operator runs; the tensors that its node saves refer to it.
struct OperatorNote {
  /// Of normalizations.
  std::optional<double> eps{};
  std::shared_ptr<PackHook> bias{};  // null if there was none

  /// Of dropout: its probability, its input, and the start of its random numbers.
  struct Drawn {
    double p;
    RandomStart start;
    c10::SmallVector<std::int64_t, 5> sizes;
    c10::SmallVector<std::int64_t, 5> strides;
    at::TensorOptions options;
  };

  std::optional<Drawn> drawn{};

  /// Of batch norms: the type of their running statistics. In evaluation mode copies of them,
  /// because they may change without a new version.
  std::optional<at::ScalarType> statistics{};
  at::Tensor mean{};
  at::Tensor var{};

  /// Of dropout, and of operators that save their result: the version of the input.
  std::optional<std::uint32_t> input_version{};
};

/// The note of the operator that this thread runs; null if it needs none.
const std::shared_ptr<const OperatorNote>& current_note();

/// Enables or disables notes for this thread's operators. The first call registers the kernels that
/// write them. They are in the dispatch path of threads with notes only.
void note_operators(bool wanted);

}  // namespace spillway
