// SPDX-License-Identifier: Apache-2.0
#include "tests/emulator/emulated.h"

#include <algorithm>
#include <cmath>

namespace {

using emulated::kUnit;

class PoisonTest : public emulated::Test {};

bool poisoned(const char* at, std::size_t bytes) {
  return std::all_of(at, at + bytes, [](char each) { return each == '\xFF'; });
}

TEST_F(PoisonTest, NewMemoryIsFullOfIt) {
  const emulated::DeviceBytes small(700);
  const emulated::DeviceBytes large(kUnit);
  void* ordered = nullptr;
  ASSERT_EQ(cudaMallocAsync(&ordered, kUnit, nullptr), cudaSuccess);

  EXPECT_TRUE(poisoned(small.at(), 700));
  EXPECT_TRUE(poisoned(large.at(), kUnit));
  EXPECT_TRUE(poisoned(static_cast<char*>(ordered), kUnit));
  EXPECT_EQ(cudaFreeAsync(ordered, nullptr), cudaSuccess);
}

TEST_F(PoisonTest, ItIsNoNumber) {
  const emulated::DeviceBytes block(16);
  float number = 0;

  ASSERT_EQ(cudaMemcpy(&number, block.at(), sizeof number, cudaMemcpyDeviceToHost), cudaSuccess);

  EXPECT_TRUE(std::isnan(number));
}

TEST_F(PoisonTest, AFreedBlockOfASharedPageIsFullOfIt) {
  const emulated::DeviceBytes keeps_the_page(512);
  void* at = nullptr;
  ASSERT_EQ(cudaMalloc(&at, 512), cudaSuccess);
  std::memset(at, 0, 512);

  ASSERT_EQ(cudaFree(at), cudaSuccess);

  EXPECT_TRUE(poisoned(static_cast<char*>(at), 512));
}

TEST_F(PoisonTest, MappedMemoryIsFullOfItOnceAndKeepsItsBytesLater) {
  CUdeviceptr base = 0;
  CUmemGenericAllocationHandle handle = 0;
  const CUmemAllocationProp properties = emulated::memory_of(0);
  const CUmemAccessDesc access = emulated::access_of(0, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
  ASSERT_EQ(CU(MemAddressReserve, 10020)(&base, kUnit, 0, 0, 0), CUDA_SUCCESS);
  ASSERT_EQ(CU(MemCreate, 10020)(&handle, kUnit, &properties, 0), CUDA_SUCCESS);
  ASSERT_EQ(CU(MemMap, 10020)(base, kUnit, 0, handle, 0), CUDA_SUCCESS);
  ASSERT_EQ(CU(MemSetAccess, 10020)(base, kUnit, &access, 1), CUDA_SUCCESS);
  char* bytes = reinterpret_cast<char*>(base);
  EXPECT_TRUE(poisoned(bytes, kUnit));
  bytes[5] = 3;

  ASSERT_EQ(CU(MemUnmap, 10020)(base, kUnit), CUDA_SUCCESS);
  ASSERT_EQ(CU(MemMap, 10020)(base, kUnit, 0, handle, 0), CUDA_SUCCESS);
  ASSERT_EQ(CU(MemSetAccess, 10020)(base, kUnit, &access, 1), CUDA_SUCCESS);

  EXPECT_EQ(bytes[5], 3);
  EXPECT_EQ(CU(MemUnmap, 10020)(base, kUnit), CUDA_SUCCESS);
  EXPECT_EQ(CU(MemRelease, 10020)(handle), CUDA_SUCCESS);
  EXPECT_EQ(CU(MemAddressFree, 10020)(base, kUnit), CUDA_SUCCESS);
}

}  // namespace
