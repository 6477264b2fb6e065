// SPDX-License-Identifier: Apache-2.0
#include "tests/emulator/emulated.h"

namespace {

using namespace emulated;

/// The driver's documented refusals that have to do with memory and have no test of their own.
class MemoryRefusalsTest : public emulated::Test {
 protected:
  template <typename Value>
  static Value attribute(CUpointer_attribute which, const void* at) {
    Value value{};
    EXPECT_EQ(CU(PointerGetAttribute, 4000)(&value, which, address(at)), CUDA_SUCCESS);
    return value;
  }
};

TEST_F(MemoryRefusalsTest, UnknownFlagsOfPageLockedMemoryAreRefused) {
  constexpr std::size_t kPage = 4096;
  std::vector<char> memory(2 * kPage);
  void* at = nullptr;

  EXPECT_EQ(cudaHostAlloc(&at, kPage, 8), cudaErrorInvalidValue);
  EXPECT_EQ(cudaHostRegister(memory.data(), kPage, 16), cudaErrorInvalidValue);
  EXPECT_EQ(cudaHostRegister(memory.data(), kPage, cudaHostRegisterIoMemory),
            cudaErrorNotSupported);
  EXPECT_EQ(cudaHostRegister(memory.data(), 0, 0), cudaErrorInvalidValue);
  EXPECT_EQ(cudaHostRegister(memory.data(), kPage, cudaHostRegisterPortable), cudaSuccess);
  EXPECT_EQ(cudaHostUnregister(memory.data()), cudaSuccess);
}

TEST_F(MemoryRefusalsTest, HostMemoryFromCuMemCreateIsRefusedByName) {
  CUmemGenericAllocationHandle handle = 0;
  CUmemAllocationProp on_host = memory_of(0);
  on_host.location.type = CU_MEM_LOCATION_TYPE_HOST_NUMA;

  EXPECT_EQ(CU(MemCreate, 10020)(&handle, kUnit, &on_host, 0), CUDA_ERROR_NOT_SUPPORTED);
  EXPECT_STREQ(cudaGetErrorString(cudaErrorNotSupported),
               "host memory from cuMemCreate is not emulated");
  on_host.location.type = CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT;
  EXPECT_EQ(CU(MemCreate, 10020)(&handle, kUnit, &on_host, 0), CUDA_ERROR_INVALID_VALUE);
}

TEST_F(MemoryRefusalsTest, HandlesForAddressRangesAreRefusedByName) {
  int file = -1;

  EXPECT_EQ(CU(MemGetHandleForAddressRange, 11070)(
                &file, 0, kUnit, CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, 0),
            CUDA_ERROR_NOT_SUPPORTED);
  EXPECT_STREQ(cudaGetErrorString(cudaErrorNotSupported),
               "cuMemGetHandleForAddressRange is not emulated");
}

TEST_F(MemoryRefusalsTest, AccessOfAnUnknownKindIsRefused) {
  CUdeviceptr base = 0;
  CUmemGenericAllocationHandle handle = 0;
  const CUmemAllocationProp properties = memory_of(0);
  CUmemAccessDesc access = access_of(0, CU_MEM_ACCESS_FLAGS_PROT_MAX);
  unsigned long long flags = 0;
  ASSERT_EQ(CU(MemAddressReserve, 10020)(&base, 2 * kUnit, 0, 0, 0), CUDA_SUCCESS);
  ASSERT_EQ(CU(MemCreate, 10020)(&handle, kUnit, &properties, 0), CUDA_SUCCESS);
  ASSERT_EQ(CU(MemMap, 10020)(base, kUnit, 0, handle, 0), CUDA_SUCCESS);

  EXPECT_EQ(CU(MemSetAccess, 10020)(base, kUnit, &access, 1), CUDA_ERROR_INVALID_VALUE);
  access.location.id = 2;
  EXPECT_EQ(CU(MemGetAccess, 10020)(&flags, &access.location, base), CUDA_ERROR_INVALID_DEVICE);
  access.location.id = 0;
  EXPECT_EQ(CU(MemGetAccess, 10020)(&flags, &access.location, base + kUnit),
            CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(CU(MemUnmap, 10020)(base, kUnit), CUDA_SUCCESS);
  EXPECT_EQ(CU(MemRelease, 10020)(handle), CUDA_SUCCESS);
  EXPECT_EQ(CU(MemAddressFree, 10020)(base, 2 * kUnit), CUDA_SUCCESS);
}

TEST_F(MemoryRefusalsTest, TheAddressRangeOfMappedMemoryIsOneMapping) {
  CUdeviceptr base = 0;
  CUdeviceptr begin = 0;
  std::size_t bytes = 0;
  const CUmemAllocationProp properties = memory_of(0);
  const CUmemAccessDesc access = access_of(0, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
  ASSERT_EQ(CU(MemAddressReserve, 10020)(&base, 2 * kUnit, 0, 0, 0), CUDA_SUCCESS);
  for (const CUdeviceptr at : {base, base + kUnit}) {
    CUmemGenericAllocationHandle handle = 0;
    ASSERT_EQ(CU(MemCreate, 10020)(&handle, kUnit, &properties, 0), CUDA_SUCCESS);
    ASSERT_EQ(CU(MemMap, 10020)(at, kUnit, 0, handle, 0), CUDA_SUCCESS);
    ASSERT_EQ(CU(MemRelease, 10020)(handle), CUDA_SUCCESS);
  }
  ASSERT_EQ(CU(MemSetAccess, 10020)(base, 2 * kUnit, &access, 1), CUDA_SUCCESS);

  ASSERT_EQ(CU(MemGetAddressRange, 3020)(&begin, &bytes, base + kUnit + 5), CUDA_SUCCESS);

  EXPECT_EQ(begin, base + kUnit);
  EXPECT_EQ(bytes, kUnit);
  EXPECT_EQ(CU(MemUnmap, 10020)(base, 2 * kUnit), CUDA_SUCCESS);
  EXPECT_EQ(CU(MemAddressFree, 10020)(base, 2 * kUnit), CUDA_SUCCESS);
}

TEST_F(MemoryRefusalsTest, PointersReportTheirKind) {
  const emulated::DeviceBytes block(1000);
  const emulated::LockedBytes locked(4096, 0);

  EXPECT_EQ(attribute<unsigned>(CU_POINTER_ATTRIBUTE_MEMORY_TYPE, block.at() + 7),
            static_cast<unsigned>(CU_MEMORYTYPE_DEVICE));
  EXPECT_EQ(attribute<int>(CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, block.at()), 0);
  EXPECT_EQ(attribute<CUdeviceptr>(CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, block.at() + 7),
            address(block.at()));
  EXPECT_EQ(attribute<std::size_t>(CU_POINTER_ATTRIBUTE_RANGE_SIZE, block.at() + 7), 1000U);
  EXPECT_TRUE(attribute<bool>(CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE, block.at()));
  EXPECT_EQ(attribute<void*>(CU_POINTER_ATTRIBUTE_HOST_POINTER, locked.at() + 3), locked.at() + 3);
}

TEST_F(MemoryRefusalsTest, AnUnknownPointerIsAnErrorAloneAndNothingTogether) {
  int here = 0;
  unsigned type = 7;
  CUdeviceptr start = 7;
  CUpointer_attribute attributes[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
                                      CU_POINTER_ATTRIBUTE_RANGE_START_ADDR};
  void* data[] = {&type, &start};

  EXPECT_EQ(CU(PointerGetAttribute, 4000)(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address(&here)),
            CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(CU(PointerGetAttributes, 7000)(2, attributes, data, address(&here)), CUDA_SUCCESS);
  EXPECT_EQ(type, 0U);
  EXPECT_EQ(start, 0U);
}

TEST_F(MemoryRefusalsTest, ADeviceBlockHasNoHostPointer) {
  const emulated::DeviceBytes block(16);
  void* host = nullptr;

  EXPECT_EQ(
      CU(PointerGetAttribute, 4000)(&host, CU_POINTER_ATTRIBUTE_HOST_POINTER, address(block.at())),
      CUDA_ERROR_INVALID_VALUE);
}

}  // namespace
