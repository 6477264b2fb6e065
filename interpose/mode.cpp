// SPDX-License-Identifier: Apache-2.0
#include "interpose/mode.h"

#include <cuda.h>

namespace spillway::interpose {

constinit std::atomic<Mode> mode_now{Mode::kPassThrough};

namespace {

constexpr int kRunning = -1;
constinit std::atomic<int> why_stopped{kRunning};

}  // namespace

void set_mode(Mode mode) {
  mode_now.store(mode);
  if (why_stopped.load() != kRunning) mode_now.store(Mode::kPassThrough);
}

void stop(Stop why) {
  int running = kRunning;
  why_stopped.compare_exchange_strong(running, static_cast<int>(why));
  mode_now.store(Mode::kPassThrough);
}

std::optional<Stop> stopped() {
  const int why = why_stopped.load();
  return why == kRunning ? std::nullopt : std::optional<Stop>(static_cast<Stop>(why));
}

bool is_sticky(int result) {
  switch (result) {
    case CUDA_ERROR_DEINITIALIZED:
    case CUDA_ERROR_ECC_UNCORRECTABLE:
    case CUDA_ERROR_NVLINK_UNCORRECTABLE:
    case CUDA_ERROR_ILLEGAL_ADDRESS:
    case CUDA_ERROR_LAUNCH_TIMEOUT:
    case CUDA_ERROR_ASSERT:
    case CUDA_ERROR_HARDWARE_STACK_ERROR:
    case CUDA_ERROR_ILLEGAL_INSTRUCTION:
    case CUDA_ERROR_MISALIGNED_ADDRESS:
    case CUDA_ERROR_INVALID_ADDRESS_SPACE:
    case CUDA_ERROR_INVALID_PC:
    case CUDA_ERROR_LAUNCH_FAILED:
    case CUDA_ERROR_TENSOR_MEMORY_LEAK:
    case CUDA_ERROR_MPS_CLIENT_TERMINATED:
    case CUDA_ERROR_EXTERNAL_DEVICE:
    case CUDA_ERROR_CONTAINED:
      return true;
    default:
      return false;
  }
}

}  // namespace spillway::interpose
