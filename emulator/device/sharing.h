// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "emulator/device/machine.h"
#include "emulator/device/ticket.h"

namespace spillway::emulator {

/// Sharing of cudaMalloc memory with other processes. Its pages are shared, so a small block
/// includes its neighbors of the same page, as on a GPU.

/// Errors: CUDA_ERROR_INVALID_VALUE if no cudaMalloc block of this process begins at the address
/// (mapped and stream-ordered memory is shared otherwise), CUDA_ERROR_OUT_OF_MEMORY.
CUresult share(Machine& machine, CUdeviceptr at, Ticket* ticket);

/// The block at an address of this process; the same address for the same ticket until it is closed
/// as often.
/// Errors: CUDA_ERROR_INVALID_CONTEXT for a ticket of this process, CUDA_ERROR_INVALID_HANDLE for a
/// forged ticket or an ended process, CUDA_ERROR_MAP_FAILED.
CUresult open_shared(Machine& machine, int device, const Ticket& ticket, CUdeviceptr* at);

/// Waits for the device first.
/// Errors: CUDA_ERROR_INVALID_VALUE for an address that is not from open_shared.
CUresult close_shared(Machine& machine, CUdeviceptr at);

}  // namespace spillway::emulator
