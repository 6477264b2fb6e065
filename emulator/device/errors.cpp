// SPDX-License-Identifier: Apache-2.0
#include "emulator/device/errors.h"

#include "emulator/device/settings.h"
#include "emulator/device/thread_state.h"

#include <cuda.h>

namespace spillway::emulator {
namespace {

constexpr ErrorText kErrors[] = {
    {CUDA_SUCCESS, "CUDA_SUCCESS", "cudaSuccess", "no error"},
    {CUDA_ERROR_INVALID_VALUE,
     "CUDA_ERROR_INVALID_VALUE",
     "cudaErrorInvalidValue",
     "invalid argument"},
    {CUDA_ERROR_OUT_OF_MEMORY,
     "CUDA_ERROR_OUT_OF_MEMORY",
     "cudaErrorMemoryAllocation",
     "out of memory"},
    {CUDA_ERROR_NOT_INITIALIZED,
     "CUDA_ERROR_NOT_INITIALIZED",
     "cudaErrorInitializationError",
     "initialization error"},
    {CUDA_ERROR_INVALID_DEVICE,
     "CUDA_ERROR_INVALID_DEVICE",
     "cudaErrorInvalidDevice",
     "invalid device ordinal"},
    {CUDA_ERROR_INVALID_CONTEXT,
     "CUDA_ERROR_INVALID_CONTEXT",
     "cudaErrorDeviceUninitialized",
     "no context is current on this thread"},
    {CUDA_ERROR_INVALID_HANDLE,
     "CUDA_ERROR_INVALID_HANDLE",
     "cudaErrorInvalidResourceHandle",
     "invalid resource handle"},
    {CUDA_ERROR_NOT_FOUND,
     "CUDA_ERROR_NOT_FOUND",
     "cudaErrorSymbolNotFound",
     "named symbol not found"},
    {CUDA_ERROR_NOT_READY, "CUDA_ERROR_NOT_READY", "cudaErrorNotReady", "device not ready"},
    {CUDA_ERROR_ILLEGAL_ADDRESS,
     "CUDA_ERROR_ILLEGAL_ADDRESS",
     "cudaErrorIllegalAddress",
     "an operation touched memory that was gone when it ran"},
    {CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED,
     "CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED",
     "cudaErrorPeerAccessAlreadyEnabled",
     "peer access is already enabled"},
    {CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED,
     "CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED",
     "cudaErrorHostMemoryAlreadyRegistered",
     "part or all of the memory is already page-locked"},
    {CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED,
     "CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED",
     "cudaErrorHostMemoryNotRegistered",
     "the pointer was not registered"},
    {CUDA_ERROR_NOT_PERMITTED,
     "CUDA_ERROR_NOT_PERMITTED",
     "cudaErrorNotPermitted",
     "operation not permitted"},
    {CUDA_ERROR_NOT_SUPPORTED,
     "CUDA_ERROR_NOT_SUPPORTED",
     "cudaErrorNotSupported",
     "operation not supported"},
};

}  // namespace

const ErrorText* error_text(int code) {
  for (const ErrorText& each : kErrors) {
    if (each.code == code) return &each;
  }
  return nullptr;
}

const char* explain_error(int code) {
  if (code == CUDA_ERROR_NOT_INITIALIZED && *settings_error() != '\0') return settings_error();
  const char* refused = thread_state().refused.data();
  if (code == CUDA_ERROR_NOT_SUPPORTED && *refused != '\0') return refused;
  const ErrorText* known = error_text(code);
  return known == nullptr ? "unrecognized error code" : known->text;
}

}  // namespace spillway::emulator
