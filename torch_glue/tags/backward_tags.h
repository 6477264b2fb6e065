// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "allocator/base/ids.h"

#include <ATen/core/Tensor.h>

namespace spillway {

/// From now on backward passes allocate, on autograd's threads too, under the scope in which the
/// operation was recorded; where that was none, under the one that ask_for_callers_scope knows.
/// Twice changes nothing. Threads: safe.
void follow_scopes_into_backward();

/// `ask` says, on a thread that works on a backward pass, which scope was open on the thread that
/// called it. Threads: safe.
void ask_for_callers_scope(TagId (*ask)());

/// While on, what backward passes allocate under no scope gets a role: "workspace/PATH" for what
/// was recorded under "activation/PATH", "workspace" for the rest, and "gradient" for what has
/// become a tensor's .grad. Requires: follow_scopes_into_backward(). Threads: safe.
void give_roles_in_backward(bool on);

/// The memory of `tensor` is for `tag`, unless a scope of the program has named it. Ignored for
/// memory that is not of Spillway's heap.
void set_tensor_role(const at::Tensor& tensor, TagId role);

/// The tag of the memory of `tensor`; kUntagged for memory that is not of Spillway's heap.
TagId tag_of(const at::Tensor& tensor);

}  // namespace spillway
