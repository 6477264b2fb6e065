// SPDX-License-Identifier: Apache-2.0
#include "tests/emulator/emulated.h"
#include "tests/emulator/in_process.h"

#include <sys/resource.h>

#include <fstream>

namespace {

using namespace emulated;

constexpr std::size_t kMany = 100'000;

/// The machine's usual limits: 65530 mappings and 1024 open files in a process.
std::size_t mappings() {
  std::ifstream file("/proc/self/maps");
  std::string line;
  std::size_t lines = 0;
  while (std::getline(file, line))
    ++lines;
  return lines;
}

void limit_files() {
  const rlimit limit = {1024, 1024};
  setrlimit(RLIMIT_NOFILE, &limit);
}

std::vector<void*> allocate(std::size_t count, std::size_t bytes) {
  std::vector<void*> blocks(count, nullptr);
  for (void*& block : blocks) {
    if (cudaMalloc(&block, bytes) != cudaSuccess) return {};
  }
  return blocks;
}

class ManyBlocksTest : public emulated::Test {
 protected:
  void SetUp() override {
    limit_files();
    emulated::Test::SetUp();
  }

  void TearDown() override { EXPECT_EQ(spillway_emulator_used(0), 0U); }
};

TEST_F(ManyBlocksTest, SmallBlocksShareFilesMappingsAndPages) {
  const std::size_t before = mappings();

  const std::vector<void*> blocks = allocate(kMany, 1024);

  ASSERT_EQ(blocks.size(), kMany);
  EXPECT_LT(mappings(), before + 64);
  EXPECT_EQ(spillway_emulator_used(0), (kMany * 1024 + kUnit - 1) / kUnit * kUnit);
  for (void* block : blocks)
    ASSERT_EQ(cudaFree(block), cudaSuccess);
}

TEST_F(ManyBlocksTest, LargeBlocksFreedAlternatelyLeaveTheProcessItsMappings) {
  const std::vector<void*> blocks = allocate(kMany, kUnit);
  ASSERT_EQ(blocks.size(), kMany);

  for (std::size_t i = 0; i < kMany; i += 2)
    ASSERT_EQ(cudaFree(blocks[i]), cudaSuccess);

  EXPECT_LT(mappings(), 32'000U);
  EXPECT_EQ(spillway_emulator_used(0), kMany / 2 * kUnit);
  EXPECT_EQ(cudaMemset(blocks[kMany - 1], 1, kUnit), cudaSuccess);
  for (std::size_t i = 1; i < kMany; i += 2)
    ASSERT_EQ(cudaFree(blocks[i]), cudaSuccess);
}

TEST_F(ManyBlocksTest, FreedBlocksThatStayInSightReadAsZeros) {
  const std::vector<void*> blocks = allocate(kMany, kUnit);
  ASSERT_EQ(blocks.size(), kMany);
  auto* last = static_cast<char*>(blocks[kMany - 2]);
  last[0] = 1;

  for (std::size_t i = 0; i < kMany; i += 2)
    ASSERT_EQ(cudaFree(blocks[i]), cudaSuccess);

  EXPECT_EQ(last[0], 0);
  EXPECT_EQ(cudaMemset(last, 1, 1), cudaErrorInvalidValue);
  for (std::size_t i = 1; i < kMany; i += 2)
    ASSERT_EQ(cudaFree(blocks[i]), cudaSuccess);
}

TEST_F(ManyBlocksTest, HandlesMappedInARowAndUnmappedAlternatelyLeaveTheProcessItsMappings) {
  CUdeviceptr base = 0;
  ASSERT_EQ(CU(MemAddressReserve, 10020)(&base, kMany * kUnit, 0, 0, 0), CUDA_SUCCESS);
  const CUmemAllocationProp properties = memory_of(0);
  const CUmemAccessDesc access = access_of(0, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
  const std::size_t before = mappings();
  for (std::size_t i = 0; i < kMany; ++i) {
    CUmemGenericAllocationHandle handle = 0;
    ASSERT_EQ(CU(MemCreate, 10020)(&handle, kUnit, &properties, 0), CUDA_SUCCESS);
    ASSERT_EQ(CU(MemMap, 10020)(base + i * kUnit, kUnit, 0, handle, 0), CUDA_SUCCESS);
    ASSERT_EQ(CU(MemSetAccess, 10020)(base + i * kUnit, kUnit, &access, 1), CUDA_SUCCESS);
    ASSERT_EQ(CU(MemRelease, 10020)(handle), CUDA_SUCCESS);
  }
  EXPECT_LT(mappings(), before + 64);

  for (std::size_t i = 0; i < kMany; i += 2)
    ASSERT_EQ(CU(MemUnmap, 10020)(base + i * kUnit, kUnit), CUDA_SUCCESS);

  EXPECT_LT(mappings(), 32'000U);
  for (std::size_t i = 1; i < kMany; i += 2)
    ASSERT_EQ(CU(MemUnmap, 10020)(base + i * kUnit, kUnit), CUDA_SUCCESS);
  EXPECT_EQ(CU(MemAddressFree, 10020)(base, kMany * kUnit), CUDA_SUCCESS);
}

/// The test itself has used the emulator, so a process for another limit is a program of its own.
TEST(AddressLimitTest, WhereTheMachineForbidsLargeArenasSmallOnesDo) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "a sanitizer itself needs more addresses than the limit";
#endif
  const std::string written = in_process({{"SPILLWAY_EMULATE_MEMORY", "1GiB"}}, [] {
    const rlimit limit = {2048 * kMiB, 2048 * kMiB};
    setrlimit(RLIMIT_AS, &limit);
    void* at = nullptr;
    const cudaError_t fits = cudaMalloc(&at, 512 * kMiB);
    static_cast<char*>(at)[0] = 1;
    CUdeviceptr base = 0;
    const CUresult reserved = CU(MemAddressReserve, 10020)(&base, 64 * kMiB, 0, 0, 0);
    const CUresult too_much = CU(MemAddressReserve, 10020)(&base, 4096 * kMiB, 0, 0, 0);
    dprintf(STDOUT_FILENO, "%d %d %d\n", fits, reserved, too_much);
  });

  EXPECT_EQ(written, "0 0 2\n");
}

}  // namespace
