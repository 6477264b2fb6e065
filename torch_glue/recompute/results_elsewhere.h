// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "torch_glue/saved_tensors/pack_hook.h"

#include <ATen/core/Tensor.h>
#include <torch/csrc/autograd/edge.h>

#include <cstdint>
#include <memory>

namespace spillway {

/// Results of operators that have no rule, which something behind them has saved: a recipe that
/// needs one can have it from there. For regions without a budget: a plan would not know of it.
///
/// Threads: each knows the last ones that it has saved itself. Ownership: holds none of them.

/// This thread has packed the tensor, to be kept or moved.
void note_result(const at::Tensor& tensor, const PackHook& packed);

/// A handle of the result behind the edge as it was at `version`; null where nothing has it, and
/// where it has been changed.
std::shared_ptr<PackHook> result_elsewhere(const torch::autograd::Edge& edge,
                                           std::uint32_t version);

}  // namespace spillway
