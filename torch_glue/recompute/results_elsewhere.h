// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "torch_glue/saved_tensors/pack_hook.h"

#include <ATen/core/Tensor.h>
#include <torch/csrc/autograd/edge.h>

#include <cstdint>
#include <memory>

namespace spillway {

/// Results of operators without a rule that a later node has saved. A recipe can use them from
/// there. For regions without a budget only, because a plan would not know of the dependency.
///
/// Threads: each thread knows its own latest saves. Ownership: none of the results.

/// Records that this thread has packed the tensor, to be kept or offloaded.
void note_result(const at::Tensor& tensor, const PackHook& packed);

/// A handle of the result behind the edge at `version`; null if none is known or it has been
/// changed.
std::shared_ptr<PackHook> result_elsewhere(const torch::autograd::Edge& edge,
                                           std::uint32_t version);

}  // namespace spillway
