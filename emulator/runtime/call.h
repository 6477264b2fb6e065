// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "emulator/device/machine.h"

#include <cuda_runtime_api.h>

namespace spillway::emulator::runtime {

/// A pointer in the driver's type.
inline CUdeviceptr address(const void* at) {
  return reinterpret_cast<CUdeviceptr>(at);
}

/// Converts a driver result to the runtime's and stores it for cudaGetLastError. The numbers are
/// the same.
cudaError_t remember(CUresult result);

/// Starts the driver. True if it runs.
bool start();
/// Starts the driver and makes device 0 current on a thread without a current device, as the
/// runtime does.
void use_current_device();

/// CUDA_SUCCESS, or the fault injected into this call of `function`.
CUresult fault_of(const char* function);

/// The body of a runtime function that needs no device: counts, starts the driver, runs `body()`.
template <Literal kName, typename Body>
cudaError_t enter(Body&& body) {
  counter<kName>.add();
  start();
  const CUresult fault = fault_of(kName.text);
  return remember(fault == CUDA_SUCCESS ? static_cast<CUresult>(body()) : fault);
}

/// As `enter`, with a current device. `body` calls driver functions.
template <Literal kName, typename Body>
cudaError_t enter_on_device(Body&& body) {
  counter<kName>.add();
  use_current_device();
  const CUresult fault = fault_of(kName.text);
  return remember(fault == CUDA_SUCCESS ? static_cast<CUresult>(body()) : fault);
}

}  // namespace spillway::emulator::runtime
