// SPDX-License-Identifier: Apache-2.0
#include "emulator/device/errors.h"

#include "emulator/device/settings.h"
#include "emulator/device/thread_state.h"

#include <cuda.h>

namespace spillway::emulator {
namespace {

constexpr ErrorText kErrors[] = {
#define SPILLWAY_CUDA_ERROR(driver, runtime, text) {CUDA_##driver, "CUDA_" #driver, #runtime, text},
#include "emulator/device/errors.inc"
#undef SPILLWAY_CUDA_ERROR
};

}  // namespace

const ErrorText* error_text(int code) {
  for (const ErrorText& each : kErrors) {
    if (each.code == code) return &each;
  }
  return nullptr;
}

bool is_sticky(int code) {
  switch (code) {
    case CUDA_ERROR_ECC_UNCORRECTABLE:
    case CUDA_ERROR_NVLINK_UNCORRECTABLE:
    case CUDA_ERROR_CONTAINED:
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
      return true;
    default:
      return false;
  }
}

const char* explain_error(int code) {
  if (code == CUDA_ERROR_NOT_INITIALIZED && *settings_error() != '\0') return settings_error();
  const char* refused = thread_state().refused.data();
  if (code == CUDA_ERROR_NOT_SUPPORTED && *refused != '\0') return refused;
  const ErrorText* known = error_text(code);
  return known == nullptr ? "unrecognized error code" : known->text;
}

}  // namespace spillway::emulator
