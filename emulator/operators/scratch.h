// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/ivalue.h>
#include <c10/util/ArrayRef.h>
#include <c10/util/SmallVector.h>

#include <string_view>

namespace spillway::operators {

/// The sizes in bytes of what a CUDA kernel takes from PyTorch's allocator for the time of one
/// call, besides its results.
using Scratch = c10::SmallVector<size_t, 4>;

using ScratchRule = Scratch (*)(c10::ArrayRef<c10::IValue> arguments);

/// The rule of an operator (its name without overload), null where it takes nothing, or what is not
/// modelled: sorts, scans and top-k.
///
/// Flash attention's backward pass and that of embeddings are PyTorch's (flash_attn/flash_api.cpp
/// mha_bwd, EmbeddingBackwardKernel.cu); memory-efficient attention's gradient of the query is its
/// largest part (mem_eff_attention/kernel_backward.h). cuDNN says nothing of its workspaces:
/// attention is taken to need what flash attention does, and convolutions to copy what is not in
/// channels-last order, which their kernels want. These two are estimates.
ScratchRule scratch_rule(std::string_view name);

/// Allocates all of it from the current CUDA allocator, and gives it back.
///
/// Stream: the current one. Errors: the allocator's.
void take_scratch(const Scratch& scratch);

}  // namespace spillway::operators
