// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/SmallVector.h>
#include <torch/csrc/autograd/function.h>

#include <cstdint>
#include <memory>
#include <optional>

namespace spillway {

class PackHook;
class Recipe;

/// What an operator was given and its node does not keep, for the few operators that cannot be run
/// again without it. It is written while they run, and the tensors that their nodes save carry it.
struct OperatorNote {
  /// Of normalizations.
  std::optional<double> eps{};
  std::shared_ptr<PackHook> bias{};  // null where there was none

  /// Of dropout: its share, what it was given, and where its random numbers began.
  struct Drawn {
    double p;
    std::uint64_t seed;
    std::uint64_t offset;
    c10::SmallVector<std::int64_t, 5> sizes;
    c10::SmallVector<std::int64_t, 5> strides;
    at::TensorOptions options;
  };

  std::optional<Drawn> drawn{};

  /// Of batch norms: what kind of running statistics they were given. In evaluation copies of them,
  /// because they may change without a new version.
  std::optional<at::ScalarType> statistics{};
  at::Tensor mean{};
  at::Tensor var{};

  /// Of dropout, and of operators that save their result: the version of what it was given.
  std::optional<std::uint32_t> input_version{};
};

/// The one of the operator that this thread runs, null where it needs none.
const std::shared_ptr<const OperatorNote>& current_note();

/// From now on this thread's operators are noted, or no longer. The first call registers kernels
/// that note for them; they are on the way of threads that note alone.
void note_operators(bool wanted);

}  // namespace spillway
