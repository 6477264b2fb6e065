// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "emulator/device/machine.h"

namespace spillway::emulator {

/// Release of memory to the driver. The order checker drops its records of the memory.

/// Waits for the device first, as the driver does.
/// Errors: CUDA_ERROR_INVALID_VALUE if no block begins at the address.
CUresult free_and_wait(Machine& machine, CUdeviceptr at);

/// Frees in stream order. Counts as a write for the order checker: a use on another stream must be
/// ordered before it.
/// Errors: as above, including a second free.
CUresult free_in_order(Machine& machine, Stream& stream, CUdeviceptr at, const char* operation);

/// Waits for every device first. Errors: CUDA_ERROR_INVALID_VALUE.
CUresult free_host_and_wait(Machine& machine, void* at);

/// Errors: CUDA_ERROR_INVALID_VALUE, CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED.
CUresult register_host(Machine& machine, void* at, std::size_t bytes);

/// Does not wait; the order checker reports a use that the host has not ordered before it.
/// Errors: CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED.
CUresult unregister_host(Machine& machine, void* at, const char* operation);

/// As unregister_host, for device memory. Errors: as VirtualMemory::unmap.
CUresult unmap(Machine& machine, CUdeviceptr at, std::size_t bytes);

}  // namespace spillway::emulator
