// SPDX-License-Identifier: Apache-2.0
#include "emulator/device/errors.h"

#include "emulator/runtime/call.h"
#include "emulator/runtime/refused.h"

namespace emu = spillway::emulator;

namespace spillway::emulator::runtime {

cudaError_t remember(CUresult result) {
  const Machine* machine = machine_if_ready();
  if (result == CUDA_ERROR_NOT_INITIALIZED && machine != nullptr &&
      machine->settings.devices == 0) {
    result = CUDA_ERROR_NO_DEVICE;  // why the driver did not start
  }
  if (result != CUDA_SUCCESS) thread_state().last_error = result;
  return static_cast<cudaError_t>(result);
}

bool start() {
  Machine* machine = machine_if_ready();
  if (machine == nullptr || machine->settings.devices == 0) return false;
  if (!machine->driver_started.load(std::memory_order_relaxed)) machine->driver_started.store(true);
  return true;
}

int refuse_call(Counter& calls, const char* name) {
  calls.add();
  return remember(refuse(name));
}

CUresult fault_of(const char* function) {
  Machine* machine = machine_if_ready();
  if (machine == nullptr || machine->sticky != CUDA_SUCCESS) return CUDA_SUCCESS;
  const CUresult fault = injected(function);
  return fault == CUDA_SUCCESS ? fault : machine->fail(fault);
}

void use_current_device() {
  if (!start() || thread_state().device != kNoDevice) return;
  thread_state().device = 0;
  machine_if_ready()->active[0].store(true);
}

}  // namespace spillway::emulator::runtime

extern "C" {

cudaError_t cudaPeekAtLastError() {
  return static_cast<cudaError_t>(emu::thread_state().last_error);
}

cudaError_t cudaGetLastError() {
  const cudaError_t last = cudaPeekAtLastError();
  const emu::Machine* machine = emu::machine_if_ready();
  emu::thread_state().last_error = machine == nullptr ? CUDA_SUCCESS : machine->sticky.load();
  return last;
}

const char* cudaGetErrorString(cudaError_t error) {
  return emu::explain_error(error);
}

const char* cudaGetErrorName(cudaError_t error) {
  const emu::ErrorText* known = emu::error_text(error);
  return known == nullptr ? "unrecognized error code" : known->runtime_name;
}
}
