// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "allocator/base/bytes.h"
#include "torch_glue/model_state/guarded_operator.h"

namespace spillway {

/// Runs an operator on lists (GuardedOperator::takes_lists) in slices of consecutive elements, so
/// that only the managed storages of one slice have to be resident. Returns false if one slice
/// would be enough: then nothing has run.
bool run_in_slices(const GuardedOperator& known,
                   const c10::OperatorHandle& op,
                   c10::DispatchKeySet keys,
                   c10::Stack* stack);

/// Bytes of a slice on a device with that budget, if it has several elements.
Bytes slice_bytes(Bytes budget);

/// Makes that the size of all slices; zero ends it. For tests.
void set_slice_bytes(Bytes size);

}  // namespace spillway
