// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

namespace spillway {

/// A part of an optimizer's step whose kernels run on the device's side stream (side_stream.h), so
/// that states can come and go while the program's stream continues: its next forward pass waits
/// for each parameter where it first uses it. Every other use of what the step reads or writes
/// waits likewise, by ManagedStorage::used_beside(). Small tensors are not managed: a use of one of
/// them waits for the whole step.

/// Begins a part that uses these tensors of a device: parameters, gradients and states. Returns
/// false, and changes nothing, if the program's stream has to run it. That is so where model state
/// fits beside everything else, or work on one of the tensors would not wait: it is kept resident,
/// has holders that are not guarded, or is in other memory.
/// Stream: the side stream waits for the current one, and then is the current one.
/// Errors: c10::Error.
bool begin_overlapped(const std::vector<at::Tensor>& tensors);

/// How often begin_overlapped() was true since the process started.
std::uint64_t overlapped_slices();

/// Ends the part, if there is one. The stream that was current before is so again.
void end_overlapped();

}  // namespace spillway
