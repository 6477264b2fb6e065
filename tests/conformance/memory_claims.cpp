// SPDX-License-Identifier: Apache-2.0
// cuMemAlloc, page-locked memory and contexts, after cuda.h's comments (CUDA 13.0).
#include "tests/conformance/claims.h"

#include <thread>

CONFORMANCE(Memory);

TEST_P(Memory, NothingCannotBeAllocated) {
  CUdeviceptr at = 0;
  ANSWERS(cu->MemAlloc(&at, 0), CUDA_ERROR_INVALID_VALUE);
}

TEST_P(Memory, TheNullAddressCanBeFreed) {
  ANSWERS(cu->MemFree(0), CUDA_SUCCESS);
}

TEST_P(Memory, AnAddressInsideCannotBeFreed) {
  const CUdeviceptr at = allocated(2 * kChunk);
  ANSWERS(cu->MemFree(at + kChunk), CUDA_ERROR_INVALID_VALUE);
}

TEST_P(Memory, MemoryIsFreedOnce) {
  CUdeviceptr at = 0;
  ANSWERS(cu->MemAlloc(&at, kChunk), CUDA_SUCCESS);
  ANSWERS(cu->MemFree(at), CUDA_SUCCESS);
  ANSWERS(cu->MemFree(at), CUDA_ERROR_INVALID_VALUE);
}

TEST_P(Memory, AddressesAreAlignedTo256Bytes) {
  HOLDS(allocated(1) % 256 == 0);
  HOLDS(allocated(1) % 256 == 0);
}

TEST_P(Memory, AnAddressInsideFindsItsAllocation) {
  const CUdeviceptr at = allocated(3 * kChunk);
  CUdeviceptr base = 0;
  std::size_t bytes = 0;
  ANSWERS(cu->MemGetAddressRange(&base, &bytes, at + kChunk + 1), CUDA_SUCCESS);
  HOLDS(base == at);
  HOLDS(bytes == 3 * kChunk);
}

TEST_P(Memory, FarTooMuchIsOutOfMemory) {
  CUdeviceptr at = 0;
  ANSWERS(cu->MemAlloc(&at, std::size_t{1} << 48U), CUDA_ERROR_OUT_OF_MEMORY);
}

TEST_P(Memory, StreamOrderedMemoryHasNoHandleForOtherProcesses) {
  const CUstream on = stream();
  CUdeviceptr at = 0;
  ANSWERS(cu->MemAllocAsync(&at, kChunk, on), CUDA_SUCCESS);
  CUipcMemHandle handle{};
  ANSWERS(cu->IpcGetMemHandle(&handle, at), CUDA_ERROR_INVALID_VALUE);
  ANSWERS(cu->MemFreeAsync(at, on), CUDA_SUCCESS);
}

TEST_P(Memory, AProcessCannotOpenItsOwnHandle) {
  CUipcMemHandle handle{};
  ANSWERS(cu->IpcGetMemHandle(&handle, allocated(kChunk)), CUDA_SUCCESS);
  CUdeviceptr opened = 0;
  HOLDS(cu->IpcOpenMemHandle(&opened, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS) != CUDA_SUCCESS);
}

TEST_P(Memory, PageLockedMemoryOfNoBytesIsNone) {
  int something = 0;
  void* at = &something;
  ANSWERS(cu->MemHostAlloc(&at, 0, 0), CUDA_SUCCESS);
  HOLDS(at == nullptr);
}

TEST_P(Memory, MemoryIsRegisteredOnce) {
  std::vector<unsigned char> bytes(1U << 20U);
  ANSWERS(cu->MemHostRegister(bytes.data(), bytes.size(), 0), CUDA_SUCCESS);
  ANSWERS(cu->MemHostRegister(bytes.data(), bytes.size(), 0),
          CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
  ANSWERS(cu->MemHostUnregister(bytes.data()), CUDA_SUCCESS);
}

TEST_P(Memory, OnlyRegisteredMemoryCanBeUnregistered) {
  std::vector<unsigned char> bytes(1U << 20U);
  ANSWERS(cu->MemHostUnregister(bytes.data()), CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
}

TEST_P(Memory, PageLockedMemoryHasTheSameAddressOnTheDevice) {
  unsigned char* at = locked(4096, 0);
  CUdeviceptr device = 0;
  ANSWERS(cu->MemHostGetDevicePointer(&device, at, 0), CUDA_SUCCESS);
  HOLDS(device == reinterpret_cast<CUdeviceptr>(at));
}

TEST_P(Memory, PageableMemoryHasNoDeviceAddress) {
  std::vector<unsigned char> bytes(4096);
  CUdeviceptr device = 0;
  ANSWERS(cu->MemHostGetDevicePointer(&device, bytes.data(), 0), CUDA_ERROR_INVALID_VALUE);
}

TEST_P(Memory, AFillOfWordsWantsAlignedAddresses) {
  const CUdeviceptr at = allocated(64);
  ANSWERS(cu->MemsetD32Async(at + 1, 0, 1, nullptr), CUDA_ERROR_INVALID_VALUE);
}

TEST_P(Memory, AThreadWithoutAContextCannotAllocate) {
  CUresult result = CUDA_SUCCESS;
  std::thread([&] {
    CUdeviceptr at = 0;
    result = cu->MemAlloc(&at, kChunk);
  }).join();
  ANSWERS(result, CUDA_ERROR_INVALID_CONTEXT);
}

TEST_P(Memory, ContextsAreAStack) {
  CUcontext outer = nullptr;
  CUcontext popped = nullptr;
  ANSWERS(cu->CtxGetCurrent(&outer), CUDA_SUCCESS);
  ANSWERS(cu->CtxPushCurrent(outer), CUDA_SUCCESS);
  ANSWERS(cu->CtxPopCurrent(&popped), CUDA_SUCCESS);
  HOLDS(popped == outer);
  CUcontext after = nullptr;
  ANSWERS(cu->CtxGetCurrent(&after), CUDA_SUCCESS);
  HOLDS(after == outer);
}
