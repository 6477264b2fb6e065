// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

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

/// From now on it is known who holds PyTorch's memory at its peak, by any of its allocators that
/// tell. Not 0 where the allocator in use does not. Requires: CUDA was started in PyTorch.
int spillway_operators_watch_memory();

/// What memory is for, where nothing says so by the functions below: what a thread allocates in a
/// backward pass without a graph of its own is the pass's, with one, or in a forward pass that
/// makes a graph, an activation's.
enum spillway_operators_role {  // NOLINT(readability-identifier-naming): C
  SPILLWAY_ROLE_OTHER,
  SPILLWAY_ROLE_PARAMETER,
  SPILLWAY_ROLE_GRADIENT,
  SPILLWAY_ROLE_OPTIMIZER,
  SPILLWAY_ROLE_INPUT,
  SPILLWAY_ROLE_ACTIVATION,
  SPILLWAY_ROLE_BACKWARD,
  SPILLWAY_ROLE_STEP,
  SPILLWAY_ROLE_WORKSPACE,
};

/// What the calling thread allocates from now on is for; SPILLWAY_ROLE_OTHER: as above.
void spillway_operators_allocates_for(int role);
/// What the block that begins there is for. Does nothing where there is none.
void spillway_operators_give_role(const void* at, int role);

/// A block of memory and who made it: an operator or a node of a backward pass, null where none
/// did, and lines of the program, null where they are not known. Both live indefinitely.
struct spillway_operators_block {  // NOLINT(readability-identifier-naming): C
  uint64_t bytes;                  // as asked for
  const char* name;
  const char* place;
  int role;
};

/// How many blocks a device held when it held most, the first time; `blocks` gets at most `most`.
size_t spillway_operators_at_peak(int device, struct spillway_operators_block* blocks, size_t most);
/// How often memory ended on a device; with more than 0, `first` is what did not fit the first
/// time, and `allocated` what was allocated then.
size_t spillway_operators_out_of_memory(int device,
                                        struct spillway_operators_block* first,
                                        uint64_t* allocated);
}
