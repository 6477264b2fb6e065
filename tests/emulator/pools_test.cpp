// SPDX-License-Identifier: Apache-2.0
#include "tests/emulator/emulated.h"

namespace {

using namespace emulated;

class PoolsTest : public emulated::Test {
 protected:
  static cudaMemPoolProps properties(int device = 0, std::size_t most = 0) {
    cudaMemPoolProps is{};
    is.allocType = cudaMemAllocationTypePinned;
    is.location.type = cudaMemLocationTypeDevice;
    is.location.id = device;
    is.maxSize = most;
    return is;
  }

  static cudaMemPool_t create(std::size_t most = 0) {
    const cudaMemPoolProps is = properties(0, most);
    cudaMemPool_t pool = nullptr;
    EXPECT_EQ(cudaMemPoolCreate(&pool, &is), cudaSuccess);
    return pool;
  }

  static std::uint64_t read(cudaMemPool_t pool, cudaMemPoolAttr attribute) {
    std::uint64_t value = 0;
    EXPECT_EQ(cudaMemPoolGetAttribute(pool, attribute, &value), cudaSuccess);
    return value;
  }

  static void* allocate(cudaMemPool_t pool, std::size_t bytes) {
    void* at = nullptr;
    EXPECT_EQ(cudaMallocFromPoolAsync(&at, bytes, pool, nullptr), cudaSuccess);
    return at;
  }

  static void free(void* at) {
    EXPECT_EQ(cudaFreeAsync(at, nullptr), cudaSuccess);
    EXPECT_EQ(cudaStreamSynchronize(nullptr), cudaSuccess);
  }

  void TearDown() override { EXPECT_EQ(spillway_emulator_used(0), 0U); }
};

TEST_F(PoolsTest, APoolCountsItsOwnBlocks) {
  cudaMemPool_t first = create();
  cudaMemPool_t second = create();
  void* at = allocate(first, 1);

  EXPECT_EQ(read(first, cudaMemPoolAttrUsedMemCurrent), 512U);
  EXPECT_EQ(read(first, cudaMemPoolAttrReservedMemCurrent), kUnit);
  EXPECT_EQ(read(second, cudaMemPoolAttrUsedMemCurrent), 0U);

  free(at);
  EXPECT_EQ(read(first, cudaMemPoolAttrUsedMemCurrent), 0U);
  EXPECT_EQ(read(first, cudaMemPoolAttrUsedMemHigh), 512U);
  EXPECT_EQ(cudaMemPoolDestroy(first), cudaSuccess);
  EXPECT_EQ(cudaMemPoolDestroy(second), cudaSuccess);
}

TEST_F(PoolsTest, GraphsHaveNoMemoryOfTheirOwn) {
  std::uint64_t bytes = 1;
  EXPECT_EQ(cudaDeviceGetGraphMemAttribute(0, cudaGraphMemAttrReservedMemCurrent, &bytes),
            cudaSuccess);
  EXPECT_EQ(bytes, 0U);
  EXPECT_EQ(cudaDeviceGetGraphMemAttribute(9, cudaGraphMemAttrUsedMemHigh, &bytes),
            cudaErrorInvalidDevice);
  EXPECT_EQ(cudaDeviceGetGraphMemAttribute(0, cudaGraphMemAttrReservedMemCurrent, nullptr),
            cudaErrorInvalidValue);
  EXPECT_EQ(cudaGetLastError(), cudaErrorInvalidValue);
}

TEST_F(PoolsTest, ADestroyedPoolIsUnknownButItsBlocksLive) {
  cudaMemPool_t pool = create();
  void* at = allocate(pool, kUnit);
  std::uint64_t value = 0;

  EXPECT_EQ(cudaMemPoolDestroy(pool), cudaSuccess);
  EXPECT_EQ(cudaMemPoolDestroy(pool), cudaErrorInvalidValue);
  EXPECT_EQ(cudaMemPoolGetAttribute(pool, cudaMemPoolAttrUsedMemCurrent, &value),
            cudaErrorInvalidValue);
  EXPECT_EQ(cudaMemset(at, 1, kUnit), cudaSuccess);
  free(at);
}

TEST_F(PoolsTest, TheDefaultPoolCannotBeDestroyed) {
  cudaMemPool_t pool = nullptr;
  ASSERT_EQ(cudaDeviceGetDefaultMemPool(&pool, 0), cudaSuccess);

  EXPECT_EQ(cudaMemPoolDestroy(pool), cudaErrorInvalidValue);
}

TEST_F(PoolsTest, TheCurrentPoolServesAllocationsUntilItIsDestroyed) {
  cudaMemPool_t pool = create();
  cudaMemPool_t now = nullptr;
  cudaMemPool_t original = nullptr;
  ASSERT_EQ(cudaDeviceGetDefaultMemPool(&original, 0), cudaSuccess);
  ASSERT_EQ(cudaDeviceSetMemPool(0, pool), cudaSuccess);
  void* at = nullptr;
  ASSERT_EQ(cudaMallocAsync(&at, kUnit, nullptr), cudaSuccess);

  EXPECT_EQ(read(pool, cudaMemPoolAttrUsedMemCurrent), kUnit);
  free(at);
  ASSERT_EQ(cudaMemPoolDestroy(pool), cudaSuccess);
  ASSERT_EQ(cudaDeviceGetMemPool(&now, 0), cudaSuccess);
  EXPECT_EQ(now, original);
}

TEST_F(PoolsTest, APoolOfAnotherDeviceCannotBeCurrent) {
  cudaMemPool_t pool = create();

  EXPECT_EQ(cudaDeviceSetMemPool(1, pool), cudaErrorInvalidValue);
  EXPECT_EQ(cudaMemPoolDestroy(pool), cudaSuccess);
}

TEST_F(PoolsTest, APoolKeepsToItsLargestSize) {
  cudaMemPool_t pool = create(4 * kMiB);
  void* at = allocate(pool, 4 * kMiB);
  void* more = nullptr;

  EXPECT_EQ(cudaMallocFromPoolAsync(&more, 1, pool, nullptr), cudaErrorMemoryAllocation);
  free(at);
  EXPECT_EQ(cudaMemPoolDestroy(pool), cudaSuccess);
}

TEST_F(PoolsTest, CreateRefusesWhatIsNoDevicesMemory) {
  cudaMemPool_t pool = nullptr;
  cudaMemPoolProps managed = properties();
  managed.allocType = cudaMemAllocationTypeInvalid;
  cudaMemPoolProps shared = properties();
  shared.handleTypes = cudaMemHandleTypePosixFileDescriptor;
  const cudaMemPoolProps unknown = properties(2);

  EXPECT_EQ(cudaMemPoolCreate(&pool, &managed), cudaErrorInvalidValue);
  EXPECT_EQ(cudaMemPoolCreate(&pool, &shared), cudaErrorNotSupported);
  EXPECT_EQ(cudaMemPoolCreate(&pool, &unknown), cudaErrorInvalidDevice);
  EXPECT_EQ(pool, nullptr);
}

TEST_F(PoolsTest, AccessIsKeptByDevice) {
  cudaMemPool_t pool = create();
  cudaMemLocation other = {cudaMemLocationTypeDevice, {1}};
  cudaMemAccessDesc access = {other, cudaMemAccessFlagsProtRead};
  cudaMemAccessFlags flags = cudaMemAccessFlagsProtNone;

  ASSERT_EQ(cudaMemPoolSetAccess(pool, &access, 1), cudaSuccess);
  ASSERT_EQ(cudaMemPoolGetAccess(&flags, pool, &other), cudaSuccess);
  EXPECT_EQ(flags, cudaMemAccessFlagsProtRead);

  access.location.id = 0;
  EXPECT_EQ(cudaMemPoolSetAccess(pool, &access, 1), cudaErrorInvalidValue);
  access.location.id = 2;
  EXPECT_EQ(cudaMemPoolSetAccess(pool, &access, 1), cudaErrorInvalidDevice);
  EXPECT_EQ(cudaMemPoolDestroy(pool), cudaSuccess);
}

TEST_F(PoolsTest, OnlyPeaksCanBeReset) {
  cudaMemPool_t pool = create();
  std::uint64_t value = 7;
  free(allocate(pool, kUnit));

  EXPECT_EQ(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrUsedMemHigh, &value),
            cudaErrorInvalidValue);
  value = 0;
  EXPECT_EQ(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrUsedMemCurrent, &value),
            cudaErrorInvalidValue);
  EXPECT_EQ(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrUsedMemHigh, &value), cudaSuccess);
  EXPECT_EQ(read(pool, cudaMemPoolAttrUsedMemHigh), 0U);
  EXPECT_EQ(cudaMemPoolDestroy(pool), cudaSuccess);
}

}  // namespace
