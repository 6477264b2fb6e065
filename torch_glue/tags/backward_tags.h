// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "allocator/base/ids.h"

#include <ATen/core/Tensor.h>

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

}  // namespace spillway
