// SPDX-License-Identifier: Apache-2.0
#include "emulator/emulator.h"
#include "tests/heap/heap_fixture.h"

namespace spillway {
namespace {

class HeapPoolsTest : public HeapTest {
 protected:
  static constexpr PoolId kGraph{7};

  driver::DevicePtr allocate_in(PoolId pool, Bytes size) {
    const auto block = heap_->allocate(size, main_, TagId::kUntagged, pool);
    EXPECT_TRUE(block.ok()) << block.status().message();
    allocated_.push_back(block.value());
    return block.value();
  }
};

TEST_F(HeapPoolsTest, AFreedBlockIsNotReusedInAnotherPool) {
  const auto pooled = allocate_in(kGraph, 4_MiB);
  free(pooled);

  EXPECT_NE(allocate(4_MiB), pooled);
  EXPECT_NE(allocate_in(PoolId{8}, 4_MiB), pooled);
  EXPECT_EQ(allocate_in(kGraph, 4_MiB), pooled);
}

TEST_F(HeapPoolsTest, SmallBlocksOfTwoPoolsShareNoChunk) {
  static_cast<void>(allocate(1_KiB));
  static_cast<void>(allocate_in(kGraph, 1_KiB));

  EXPECT_EQ(heap_->stats().reserved, 4_MiB);
}

TEST_F(HeapPoolsTest, ABlockReportsItsPool) {
  const auto pooled = allocate_in(kGraph, 4_MiB);

  EXPECT_EQ(heap_->find(pooled).pool, kGraph);
  ASSERT_EQ(heap_->view().segments().size(), 1U);
  EXPECT_EQ(heap_->view().segments()[0].pool, kGraph);
}

TEST_F(HeapPoolsTest, AReleasedPoolReleasesItsFreeChunksAtOnce) {
  const auto used = spillway_emulator_used(0);
  free(allocate_in(kGraph, 4_MiB));
  free(allocate_in(kGraph, 1_KiB));
  heap_->release_pool(kGraph);

  EXPECT_EQ(heap_->stats().reserved, 0_B);
  EXPECT_EQ(spillway_emulator_used(0), used);
}

TEST_F(HeapPoolsTest, AReleasedPoolReleasesOtherChunksAsTheirBlocksAreFreed) {
  const auto first = allocate_in(kGraph, 4_MiB);
  const auto second = allocate_in(kGraph, 2_MiB);
  heap_->release_pool(kGraph);
  EXPECT_EQ(heap_->stats().reserved, 6_MiB);
  free(first);
  EXPECT_EQ(heap_->stats().reserved, 2_MiB);
  free(second);

  EXPECT_EQ(heap_->stats().reserved, 0_B);
}

TEST_F(HeapPoolsTest, TrimmingLeavesThePoolsThatAreInUseAlone) {
  free(allocate_in(kGraph, 4_MiB));
  free(allocate(2_MiB));
  heap_->trim_sync();

  EXPECT_EQ(heap_->stats().reserved, 4_MiB);
}

TEST_F(HeapPoolsTest, ReleasingAnotherPoolLeavesThisOneAlone) {
  free(allocate_in(kGraph, 4_MiB));
  free(allocate(4_MiB));
  heap_->release_pool(PoolId{9});
  heap_->release_pool(PoolId::kShared);

  EXPECT_EQ(heap_->stats().reserved, 8_MiB);
}

TEST_F(HeapPoolsTest, AnAddressOfTheHeapIsKnownWithoutALock) {
  const auto block = allocate(4_MiB);
  free(block);

  EXPECT_TRUE(heap_->owns(block));
  EXPECT_FALSE(heap_->owns(driver::DevicePtr(&allocated_)));
  EXPECT_FALSE(heap_->owns(driver::DevicePtr{}));
}

}  // namespace
}  // namespace spillway
