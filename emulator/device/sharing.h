// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "emulator/device/machine.h"
#include "emulator/device/ticket.h"

namespace spillway::emulator {

/// cudaMalloc memory for other processes. Its pages are shared, so a small block takes its
/// neighbours of the same page along, as on a GPU.

/// Errors: CUDA_ERROR_INVALID_VALUE for an address that begins no cudaMalloc block of this process
/// (mapped and stream-ordered memory have other ways), CUDA_ERROR_OUT_OF_MEMORY.
CUresult share(Machine& machine, CUdeviceptr at, Ticket* ticket);

/// The block at an address of this process, the same for the same ticket until it is closed as
/// often. Errors: CUDA_ERROR_INVALID_CONTEXT for a ticket of this process,
/// CUDA_ERROR_INVALID_HANDLE for one that is not genuine or whose process has ended,
/// CUDA_ERROR_MAP_FAILED.
CUresult open_shared(Machine& machine, int device, const Ticket& ticket, CUdeviceptr* at);

/// Waits for the device first. Errors: CUDA_ERROR_INVALID_VALUE for what open_shared did not give.
CUresult close_shared(Machine& machine, CUdeviceptr at);

}  // namespace spillway::emulator
