// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "allocator/base/ids.h"

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace spillway {

/// Allocates memory of backward passes, on autograd's threads too, under the scope in which the
/// operation was recorded. If there was none, under the scope of the calling thread
/// (ask_for_callers_scope). A second call has no effect.
/// Threads: safe.
void follow_scopes_into_backward();

/// `ask`, called on a thread that runs a backward pass, returns the scope that was open on the
/// thread that started it.
/// Threads: safe.
void ask_for_callers_scope(TagId (*ask)());

/// While on, allocations of backward passes outside all scopes get a role. It is "workspace/PATH"
/// for operations recorded under "activation/PATH" and "workspace" for others. It is "gradient" for
/// a tensor that has become a .grad.
/// Requires: follow_scopes_into_backward().
/// Threads: safe.
void set_roles_in_backward(bool on);

/// Sets the tag of the memory of `tensor`, unless a scope of the program has tagged it. Ignored for
/// memory outside of Spillway's heap.
void set_tensor_role(const at::Tensor& tensor, TagId role);

/// The tag of the memory of `tensor`; kUntagged for memory outside of Spillway's heap.
TagId tag_of(const at::Tensor& tensor);

/// Tags PyTorch's cuBLAS workspaces, one per handle and stream, with the role "workspace/cublas".
/// Each was allocated within the first matrix product on its stream. Memory under a tag of the
/// program keeps that tag.
/// Threads: safe.
void set_workspace_roles();

/// The tag that was current when an operation was recorded, without data in its node. Autograd
/// numbers a thread's nodes in creation order, so recording the numbers at which the thread's tag
/// changes is sufficient.

/// Records the thread's current tag, from its next node on, if it has changed. Bounded: the last
/// 16384 changes of a thread are kept.
void note_tag();

/// The tag under which `thread` (autograd's thread number) created its node `number`. kUntagged if
/// none was open or the record has been dropped.
/// Threads: safe.
TagId tag_at(std::uint64_t thread, std::uint64_t number);

}  // namespace spillway
