// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

/// The C interface of libspillway_emulator_operators.so: PyTorch's CUDA operators, run by their CPU
/// kernels.
extern "C" {

/// Replaces PyTorch's CUDA kernels in this process; 0 when done (also when it was done before).
///
/// Requires: libspillway_emulator.so in the process, and PyTorch's CUDA build loaded.
/// Errors: not 0, and a line in spillway_operators_error; PyTorch is then unchanged.
int spillway_operators_install();
const char* spillway_operators_error();

/// How many CUDA registrations are of a kind: "emulated" (the CPU kernel runs), "body" (written
/// here, because there is no CPU kernel), "native" (left to PyTorch), "refused" (stops by name).
size_t spillway_operators_count(const char* kind);
/// The kind of one operator ("aten::add.Tensor", or "aten::add.Tensor (sparse)" for its kernel for
/// that layout; "(compressed sparse)" and "(nested)" are the others), null where it has no CUDA
/// registration.
const char* spillway_operators_kind(const char* name);

/// From now on, blocks that PyTorch's native allocator takes back are filled with what is no
/// number, in the order of their stream. Not 0 where the allocator in use does not tell. Requires:
/// CUDA was started in PyTorch.
int spillway_operators_poison();
}
