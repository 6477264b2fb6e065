// SPDX-License-Identifier: Apache-2.0
// cuMemAddressReserve, cuMemCreate, cuMemMap and their kin. The claims are those of cuda.h's
// comments on each function (CUDA 13.0).
#include "tests/conformance/claims.h"

CONFORMANCE(VirtualMemory);

TEST_P(VirtualMemory, TheGranularityIsAPowerOfTwo) {
  std::size_t bytes = 0;
  const CUmemAllocationProp properties = on_device();
  ANSWERS(cu->MemGetAllocationGranularity(&bytes, &properties, CU_MEM_ALLOC_GRANULARITY_MINIMUM),
          CUDA_SUCCESS);
  HOLDS(bytes != 0 && (bytes & (bytes - 1)) == 0);
}

TEST_P(VirtualMemory, AReservationOfNothingIsRefused) {
  CUdeviceptr at = 0;
  ANSWERS(cu->MemAddressReserve(&at, 0, 0, 0, 0), CUDA_ERROR_INVALID_VALUE);
}

TEST_P(VirtualMemory, AnAlignmentThatIsNoPowerOfTwoIsRefused) {
  CUdeviceptr at = 0;
  ANSWERS(cu->MemAddressReserve(&at, kChunk, 3 * kChunk, 0, 0), CUDA_ERROR_INVALID_VALUE);
}

TEST_P(VirtualMemory, AReservationIsAlignedAsAsked) {
  CUdeviceptr at = 0;
  ANSWERS(cu->MemAddressReserve(&at, kChunk, 16 * kChunk, 0, 0), CUDA_SUCCESS);
  HOLDS(at % (16 * kChunk) == 0);
  ANSWERS(cu->MemAddressFree(at, kChunk), CUDA_SUCCESS);
}

TEST_P(VirtualMemory, PartOfAReservationCannotBeReleased) {
  const CUdeviceptr at = reserved(2 * kChunk);
  ANSWERS(cu->MemAddressFree(at, kChunk), CUDA_ERROR_INVALID_VALUE);
  ANSWERS(cu->MemAddressFree(at + kChunk, kChunk), CUDA_ERROR_INVALID_VALUE);
  ANSWERS(cu->MemAddressFree(at, 2 * kChunk), CUDA_SUCCESS);
}

TEST_P(VirtualMemory, PhysicalMemoryIsMadeInWholeGranules) {
  CUmemGenericAllocationHandle handle = 0;
  const CUmemAllocationProp properties = on_device();
  ANSWERS(cu->MemCreate(&handle, kChunk + 4096, &properties, 0), CUDA_ERROR_INVALID_VALUE);
  ANSWERS(cu->MemCreate(&handle, 0, &properties, 0), CUDA_ERROR_INVALID_VALUE);
}

TEST_P(VirtualMemory, MoreThanTheDeviceHasIsOutOfMemory) {
  std::size_t free = 0;
  std::size_t total = 0;
  ANSWERS(cu->MemGetInfo(&free, &total), CUDA_SUCCESS);
  CUmemGenericAllocationHandle handle = 0;
  const CUmemAllocationProp properties = on_device();
  const std::size_t too_much = (total / kChunk + 1) * kChunk;
  ANSWERS(cu->MemCreate(&handle, too_much, &properties, 0), CUDA_ERROR_OUT_OF_MEMORY);
}

TEST_P(VirtualMemory, MemoryOfAnUnknownDeviceIsRefused) {
  CUmemGenericAllocationHandle handle = 0;
  const CUmemAllocationProp properties = on_device(1000);
  ANSWERS(cu->MemCreate(&handle, kChunk, &properties, 0), CUDA_ERROR_INVALID_DEVICE);
}

TEST_P(VirtualMemory, FreeMemoryFallsByWhatIsMade) {
  std::size_t before = 0;
  std::size_t after = 0;
  std::size_t total = 0;
  ANSWERS(cu->MemGetInfo(&before, &total), CUDA_SUCCESS);
  const CUmemGenericAllocationHandle handle = created(4 * kChunk);
  ANSWERS(cu->MemGetInfo(&after, &total), CUDA_SUCCESS);
  HOLDS(before - after == 4 * kChunk);
  ANSWERS(cu->MemRelease(handle), CUDA_SUCCESS);
}

TEST_P(VirtualMemory, AMappingBeginsAtTheHandlesBegin) {
  const CUmemGenericAllocationHandle handle = created(2 * kChunk);
  const CUdeviceptr at = reserved(2 * kChunk);
  ANSWERS(cu->MemMap(at, kChunk, kChunk, handle, 0), CUDA_ERROR_NOT_SUPPORTED);
  ANSWERS(cu->MemAddressFree(at, 2 * kChunk), CUDA_SUCCESS);
  ANSWERS(cu->MemRelease(handle), CUDA_SUCCESS);
}

TEST_P(VirtualMemory, MappedAddressesCannotBeMappedAgain) {
  const CUdeviceptr at = mapped(kChunk);
  const CUmemGenericAllocationHandle other = created(kChunk);
  HOLDS(cu->MemMap(at, kChunk, 0, other, 0) != CUDA_SUCCESS);
  ANSWERS(cu->MemRelease(other), CUDA_SUCCESS);
  ANSWERS(cu->MemUnmap(at, kChunk), CUDA_SUCCESS);
  ANSWERS(cu->MemAddressFree(at, kChunk), CUDA_SUCCESS);
}

TEST_P(VirtualMemory, UnreservedAddressesCannotBeMapped) {
  const CUdeviceptr at = reserved(kChunk);
  const CUmemGenericAllocationHandle handle = created(kChunk);
  ANSWERS(cu->MemAddressFree(at, kChunk), CUDA_SUCCESS);
  ANSWERS(cu->MemMap(at, kChunk, 0, handle, 0), CUDA_ERROR_INVALID_VALUE);
  ANSWERS(cu->MemRelease(handle), CUDA_SUCCESS);
}

TEST_P(VirtualMemory, PartOfAMappingCannotBeUnmapped) {
  const CUdeviceptr at = mapped(2 * kChunk);
  ANSWERS(cu->MemUnmap(at, kChunk), CUDA_ERROR_INVALID_VALUE);
  ANSWERS(cu->MemUnmap(at + kChunk, kChunk), CUDA_ERROR_INVALID_VALUE);
  ANSWERS(cu->MemUnmap(at, 2 * kChunk), CUDA_SUCCESS);
  ANSWERS(cu->MemAddressFree(at, 2 * kChunk), CUDA_SUCCESS);
}

TEST_P(VirtualMemory, NeighboringMappingsCanBeUnmappedInOneCall) {
  const CUdeviceptr at = reserved(2 * kChunk);
  for (std::size_t i = 0; i < 2; ++i) {
    const CUmemGenericAllocationHandle handle = created(kChunk);
    ANSWERS(cu->MemMap(at + i * kChunk, kChunk, 0, handle, 0), CUDA_SUCCESS);
    ANSWERS(cu->MemRelease(handle), CUDA_SUCCESS);
  }
  ANSWERS(give_access(at, 2 * kChunk), CUDA_SUCCESS);
  ANSWERS(cu->MemUnmap(at, 2 * kChunk), CUDA_SUCCESS);
  ANSWERS(cu->MemAddressFree(at, 2 * kChunk), CUDA_SUCCESS);
}

TEST_P(VirtualMemory, AccessIsGivenToWholeMappingsOnly) {
  const CUdeviceptr at = reserved(2 * kChunk);
  const CUmemGenericAllocationHandle handle = created(kChunk);
  ANSWERS(cu->MemMap(at, kChunk, 0, handle, 0), CUDA_SUCCESS);
  ANSWERS(give_access(at, 2 * kChunk), CUDA_ERROR_INVALID_VALUE);
  ANSWERS(give_access(at, kChunk), CUDA_SUCCESS);
  ANSWERS(cu->MemUnmap(at, kChunk), CUDA_SUCCESS);
  ANSWERS(cu->MemRelease(handle), CUDA_SUCCESS);
  ANSWERS(cu->MemAddressFree(at, 2 * kChunk), CUDA_SUCCESS);
}

TEST_P(VirtualMemory, AMappingHasNoAccessUntilItIsGiven) {
  const CUdeviceptr at = reserved(kChunk);
  const CUmemGenericAllocationHandle handle = created(kChunk);
  ANSWERS(cu->MemMap(at, kChunk, 0, handle, 0), CUDA_SUCCESS);
  unsigned long long flags = 99;
  const CUmemLocation device{CU_MEM_LOCATION_TYPE_DEVICE, 0};
  ANSWERS(cu->MemGetAccess(&flags, &device, at), CUDA_SUCCESS);
  HOLDS(flags == CU_MEM_ACCESS_FLAGS_PROT_NONE);
  ANSWERS(give_access(at, kChunk), CUDA_SUCCESS);
  ANSWERS(cu->MemGetAccess(&flags, &device, at), CUDA_SUCCESS);
  HOLDS(flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
  ANSWERS(cu->MemUnmap(at, kChunk), CUDA_SUCCESS);
  ANSWERS(cu->MemRelease(handle), CUDA_SUCCESS);
  ANSWERS(cu->MemAddressFree(at, kChunk), CUDA_SUCCESS);
}

TEST_P(VirtualMemory, MemoryLivesAsLongAsItIsMapped) {
  const CUdeviceptr at = mapped(kChunk);  // its handle is released already
  ANSWERS(cu->MemsetD8(at, 7, kChunk), CUDA_SUCCESS);
  HOLDS(byte_at(at + kChunk - 1) == 7);
  ANSWERS(cu->MemUnmap(at, kChunk), CUDA_SUCCESS);
  ANSWERS(cu->MemAddressFree(at, kChunk), CUDA_SUCCESS);
}

TEST_P(VirtualMemory, AHandleKeepsItsBytesFromOneMappingToTheNext) {
  const CUmemGenericAllocationHandle handle = created(kChunk);
  const CUdeviceptr first = reserved(kChunk);
  const CUdeviceptr second = reserved(kChunk);
  ANSWERS(cu->MemMap(first, kChunk, 0, handle, 0), CUDA_SUCCESS);
  ANSWERS(give_access(first, kChunk), CUDA_SUCCESS);
  ANSWERS(cu->MemsetD8(first, 9, kChunk), CUDA_SUCCESS);
  ANSWERS(cu->CtxSynchronize(), CUDA_SUCCESS);
  ANSWERS(cu->MemUnmap(first, kChunk), CUDA_SUCCESS);
  ANSWERS(cu->MemMap(second, kChunk, 0, handle, 0), CUDA_SUCCESS);
  ANSWERS(give_access(second, kChunk), CUDA_SUCCESS);
  HOLDS(byte_at(second) == 9);
  ANSWERS(cu->MemUnmap(second, kChunk), CUDA_SUCCESS);
  ANSWERS(cu->MemRelease(handle), CUDA_SUCCESS);
  ANSWERS(cu->MemAddressFree(first, kChunk), CUDA_SUCCESS);
  ANSWERS(cu->MemAddressFree(second, kChunk), CUDA_SUCCESS);
}

TEST_P(VirtualMemory, AHandleCanBeMappedTwice) {
  const CUmemGenericAllocationHandle handle = created(kChunk);
  const CUdeviceptr at = reserved(2 * kChunk);
  ANSWERS(cu->MemMap(at, kChunk, 0, handle, 0), CUDA_SUCCESS);
  ANSWERS(cu->MemMap(at + kChunk, kChunk, 0, handle, 0), CUDA_SUCCESS);
  ANSWERS(give_access(at, 2 * kChunk), CUDA_SUCCESS);
  ANSWERS(cu->MemsetD8(at, 5, kChunk), CUDA_SUCCESS);
  HOLDS(byte_at(at + kChunk) == 5);
  ANSWERS(cu->MemUnmap(at, 2 * kChunk), CUDA_SUCCESS);
  ANSWERS(cu->MemRelease(handle), CUDA_SUCCESS);
  ANSWERS(cu->MemAddressFree(at, 2 * kChunk), CUDA_SUCCESS);
}

TEST_P(VirtualMemory, AReleasedHandleIsUnknown) {
  const CUmemGenericAllocationHandle handle = created(kChunk);
  ANSWERS(cu->MemRelease(handle), CUDA_SUCCESS);
  ANSWERS(cu->MemRelease(handle), CUDA_ERROR_INVALID_VALUE);
}

TEST_P(VirtualMemory, AnAddressInsideFindsTheHandle) {
  const CUdeviceptr at = mapped(2 * kChunk);
  CUmemGenericAllocationHandle found = 0;
  void* inside = reinterpret_cast<void*>(at + kChunk + 5);
  ANSWERS(cu->MemRetainAllocationHandle(&found, inside), CUDA_SUCCESS);
  ANSWERS(cu->MemUnmap(at, 2 * kChunk), CUDA_SUCCESS);
  ANSWERS(cu->MemRelease(found), CUDA_SUCCESS);  // the one reference that was left
  ANSWERS(cu->MemRelease(found), CUDA_ERROR_INVALID_VALUE);
  ANSWERS(cu->MemAddressFree(at, 2 * kChunk), CUDA_SUCCESS);
}

TEST_P(VirtualMemory, UnmappedAddressesCannotBeCopied) {
  const CUdeviceptr at = reserved(kChunk);
  unsigned char byte = 0;
  HOLDS(cu->MemcpyDtoH(&byte, at, 1) != CUDA_SUCCESS);
  ANSWERS(cu->MemAddressFree(at, kChunk), CUDA_SUCCESS);
}

TEST_P(VirtualMemory, MappedMemoryHasNoHandleForOtherProcesses) {
  const CUdeviceptr at = mapped(kChunk);
  CUipcMemHandle handle{};
  ANSWERS(cu->IpcGetMemHandle(&handle, at), CUDA_ERROR_INVALID_VALUE);
  ANSWERS(cu->MemUnmap(at, kChunk), CUDA_SUCCESS);
  ANSWERS(cu->MemAddressFree(at, kChunk), CUDA_SUCCESS);
}
