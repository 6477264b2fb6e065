// SPDX-License-Identifier: Apache-2.0
// What calls on virtual memory cost the host on the virtual clock: 1 ms to create a chunk, 2 to map
// it, 4 to allow access, 8 to unmap, 16 to release; 1 GB/s of creating, 2 GB/s of release.
#include "tests/emulator/emulated.h"

#include <functional>

namespace {

using namespace emulated;

constexpr double kCreate = 1 + kUnit / 1e9 * 1e3;
constexpr double kRelease = 16 + kUnit / 2e9 * 1e3;

class MappingCostsTest : public emulated::Test {
 protected:
  void SetUp() override {
    emulated::Test::SetUp();
    ASSERT_EQ(CU(MemAddressReserve, 10020)(&at_, 3 * kUnit, 0, 0, 0), CUDA_SUCCESS);
  }

  static double time(const std::function<CUresult()>& call, CUresult expected = CUDA_SUCCESS) {
    const double before = spillway_emulator_now_ms();
    EXPECT_EQ(call(), expected);
    return spillway_emulator_now_ms() - before;
  }

  static double create(CUmemGenericAllocationHandle* chunk, std::size_t bytes) {
    const CUmemAllocationProp properties = memory_of(0);
    return time([&] { return CU(MemCreate, 10020)(chunk, bytes, &properties, 0); });
  }

  double map(int index, CUmemGenericAllocationHandle chunk) {
    const CUdeviceptr where = at_ + static_cast<CUdeviceptr>(index) * kUnit;
    return time([&] { return CU(MemMap, 10020)(where, kUnit, 0, chunk, 0); });
  }

  CUdeviceptr at_ = 0;
};

TEST_F(MappingCostsTest, EachCallCostsTheHostItsTimeForEachChunk) {
  CUmemGenericAllocationHandle chunks[3] = {};
  for (auto& chunk : chunks)
    EXPECT_NEAR(create(&chunk, kUnit), kCreate, 1e-9);
  for (int i = 0; i < 3; ++i)
    EXPECT_NEAR(map(i, chunks[i]), 2, 1e-9);
  const CUmemAccessDesc access = access_of(0, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);

  EXPECT_NEAR(time([&] { return CU(MemSetAccess, 10020)(at_, 3 * kUnit, &access, 1); }), 12, 1e-9);
  EXPECT_NEAR(time([&] { return CU(MemUnmap, 10020)(at_, kUnit); }), 8, 1e-9);
  EXPECT_NEAR(time([&] { return CU(MemUnmap, 10020)(at_ + kUnit, 2 * kUnit); }), 16, 1e-9);
  for (const auto chunk : chunks)
    EXPECT_NEAR(time([&] { return CU(MemRelease, 10020)(chunk); }), kRelease, 1e-9);
}

TEST_F(MappingCostsTest, LargerChunksCostTheirBytesBesides) {
  CUmemGenericAllocationHandle one = 0;
  CUmemGenericAllocationHandle two = 0;
  const double small = create(&one, kUnit);
  const double large = create(&two, 2 * kUnit);
  EXPECT_NEAR(large - small, kUnit / 1e9 * 1e3, 1e-9);
  EXPECT_EQ(CU(MemRelease, 10020)(one), CUDA_SUCCESS);
  EXPECT_EQ(CU(MemRelease, 10020)(two), CUDA_SUCCESS);
}

TEST_F(MappingCostsTest, ACallThatFailsCostsNothing) {
  CUmemGenericAllocationHandle chunk = 0;
  const CUmemAllocationProp properties = memory_of(0);
  const auto create = [&] {
    return CU(MemCreate, 10020)(&chunk, 1, &properties, 0);
  };
  EXPECT_EQ(time(create, CUDA_ERROR_INVALID_VALUE), 0);
  EXPECT_EQ(time([&] { return CU(MemUnmap, 10020)(at_, kUnit); }, CUDA_ERROR_INVALID_VALUE), 0);
}

TEST_F(MappingCostsTest, NewMemoryOfTheRuntimeCostsAChunk) {
  void* large = nullptr;
  const double before = spillway_emulator_now_ms();
  ASSERT_EQ(cudaMalloc(&large, kUnit), cudaSuccess);
  const double allocated = spillway_emulator_now_ms();
  ASSERT_EQ(cudaFree(large), cudaSuccess);

  EXPECT_NEAR(allocated - before, kCreate + 2 + 4, 1e-9);
  EXPECT_NEAR(spillway_emulator_now_ms() - allocated, 8 + kRelease, 1e-9);
}

TEST_F(MappingCostsTest, MemoryThatTheRuntimeHasCostsNothing) {
  void* first = nullptr;
  void* second = nullptr;
  ASSERT_EQ(cudaMalloc(&first, 512), cudaSuccess);
  const double before = spillway_emulator_now_ms();
  ASSERT_EQ(cudaMalloc(&second, 512), cudaSuccess);
  EXPECT_EQ(spillway_emulator_now_ms(), before);
  EXPECT_EQ(cudaFree(second), cudaSuccess);
  EXPECT_EQ(spillway_emulator_now_ms(), before);
  EXPECT_EQ(cudaFree(first), cudaSuccess);
}

}  // namespace
