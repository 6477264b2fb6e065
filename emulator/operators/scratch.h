// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/ivalue.h>
#include <c10/util/ArrayRef.h>
#include <c10/util/SmallVector.h>

#include <string_view>

namespace spillway::operators {

/// The sizes in bytes of a CUDA kernel's temporary allocations from PyTorch's allocator for one
/// call, without its results.
using Scratch = c10::SmallVector<size_t, 4>;

using ScratchRule = Scratch (*)(c10::ArrayRef<c10::IValue> arguments);

/// The rule of an operator (its name without overload); null if it allocates nothing, or is not
/// modeled: sorts, scans and top-k.
///
/// The backward passes of flash attention and of embeddings follow PyTorch
/// (flash_attn/flash_api.cpp mha_bwd, EmbeddingBackwardKernel.cu). For memory-efficient attention
/// the gradient of the query is the largest part (mem_eff_attention/kernel_backward.h). cuDNN does
/// not report its workspaces. Two estimates replace them: attention needs as much as flash
/// attention, and convolutions copy tensors that are not channels-last.
ScratchRule scratch_rule(std::string_view name);

/// Allocates all of it from the current CUDA allocator, and frees it.
///
/// Stream: the current one. Errors: the allocator's.
void take_scratch(const Scratch& scratch);

}  // namespace spillway::operators
