// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

/// The C interface of libspillway_emulator_operators.so: PyTorch's CUDA operators, run by their CPU
/// kernels.
extern "C" {

/// Replaces PyTorch's CUDA kernels in this process; 0 on success (also if it was done before).
///
/// Requires: libspillway_emulator.so in the process, and PyTorch's CUDA build loaded.
/// Errors: nonzero, and a line in spillway_operators_error; PyTorch is then unchanged.
int spillway_operators_install();
const char* spillway_operators_error();

/// Number of CUDA registrations of a kind: "emulated" (the CPU kernel runs), "body" (implemented
/// here, because there is no CPU kernel), "native" (PyTorch's), "refused" (raises by name).
size_t spillway_operators_count(const char* kind);
/// The kind of one operator ("aten::add.Tensor", or "aten::add.Tensor (sparse)" for its kernel for
/// that layout; "(compressed sparse)" and "(nested)" are the others); null if it has no CUDA
/// registration.
const char* spillway_operators_kind(const char* name);

/// Fills blocks that PyTorch's native allocator frees with NaN bytes from now on, in stream order.
/// Nonzero if the allocator in use does not report frees.
/// Requires: CUDA was started in PyTorch.
int spillway_operators_poison();

/// Tracks PyTorch's memory by owner at its peak from now on, for any of its allocators that report.
/// Nonzero if the allocator in use does not.
/// Requires: CUDA was started in PyTorch.
int spillway_operators_watch_memory();

/// The purpose of memory that the functions below do not set. Allocations of a thread in a backward
/// pass without a graph of its own belong to that pass. With one, or in a forward pass that creates
/// a graph, they are activations.
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

/// Sets the purpose of the calling thread's allocations from now on; SPILLWAY_ROLE_OTHER: as above.
void spillway_operators_allocates_for(int role);
/// Sets the purpose of the block that begins there. Does nothing if there is none.
void spillway_operators_set_role(const void* at, int role);
/// As spillway_operators_set_role, for a block that the running operator allocated to fetch what
/// was offloaded: its maker is "fetch".
void spillway_operators_fetched(const void* at, int role);

/// A block of memory and its origin: an operator or backward node, null if there is none, and lines
/// of the program, null if unknown. Both outlive the process.
struct spillway_operators_block {  // NOLINT(readability-identifier-naming): C
  uint64_t bytes;                  // as asked for
  const char* name;
  const char* location;
  int role;
};

/// The number of blocks of a device at its first peak; at most `most` are written to `blocks`.
size_t spillway_operators_at_peak(int device, struct spillway_operators_block* blocks, size_t most);
/// The number of out-of-memory errors on a device. If nonzero, `first` is the size of the first
/// failed request, and `allocated` the bytes allocated then.
size_t spillway_operators_out_of_memory(int device,
                                        struct spillway_operators_block* first,
                                        uint64_t* allocated);
}
