// SPDX-License-Identifier: Apache-2.0
#include "emulator/emulator.h"
#include "tests/heap/heap_fixture.h"

#include <array>
#include <cstring>
#include <span>

namespace spillway {
namespace {

/// The granularity of the emulated device, and its chunks here, are 2 MiB.
class HeapEvictTest : public HeapTest {
 protected:
  Bytes evict(std::vector<driver::DevicePtr> blocks) {
    const auto back = heap_->evict(blocks);
    EXPECT_TRUE(back.ok()) << back.status().message();
    EXPECT_EQ(heap_->view().check(), "");
    return back.value();
  }

  /// A block of a pool whose free memory is written to by graphs.
  driver::DevicePtr allocate_for_graphs(Bytes size) {
    const auto block = heap_->allocate(size, main_, kTag, kGraph);
    EXPECT_TRUE(block.ok()) << block.status().message();
    allocated_.push_back(block.value());
    return block.value();
  }

  [[nodiscard]] Bytes reclaimable() const { return heap_->reclaimable({&kTag, 1}); }

  static constexpr TagId kTag{5};
  static constexpr PoolId kGraph{7};

  Status restore(std::vector<driver::DevicePtr> blocks) {
    Status status = heap_->restore(blocks);
    EXPECT_EQ(heap_->view().check(), "");
    return status;
  }
};

TEST_F(HeapEvictTest, AnEvictedBlockReleasesItsMemoryAndKeepsItsAddressAndTag) {
  const auto block = allocate(6_MiB, main_, TagId{5});
  const auto used = spillway_emulator_used(0);

  EXPECT_EQ(evict({block}), 6_MiB);
  EXPECT_EQ(spillway_emulator_used(0), used - (6_MiB).count());
  EXPECT_TRUE(heap_->find(block + 1_MiB).evicted);
  EXPECT_EQ(heap_->find(block).tag, TagId{5});
  EXPECT_EQ(heap_->stats().allocated, 6_MiB);
  EXPECT_EQ(heap_->stats().evicted, 6_MiB);
  EXPECT_EQ(heap_->stats().reserved, 0_B);
}

TEST_F(HeapEvictTest, AnEvictedBlockFaultsWhenItIsTouched) {
  const auto block = allocate(6_MiB);
  evict({block});

  EXPECT_DEATH(*static_cast<volatile char*>(block.raw()) = 1, "");
}

TEST_F(HeapEvictTest, ARestoredBlockCanBeUsedAtItsAddress) {
  const auto block = allocate(6_MiB);
  evict({block});

  EXPECT_TRUE(restore({block}).ok());
  std::memset(block.raw(), 1, (6_MiB).count());
  EXPECT_FALSE(heap_->find(block).evicted);
  EXPECT_EQ(heap_->stats().reserved, 6_MiB);
  EXPECT_EQ(heap_->stats().evicted, 0_B);
}

TEST_F(HeapEvictTest, AChunkWithAnotherAllocatedBlockStaysMapped) {
  const auto first = allocate(3_MiB);
  const auto second = allocate(3_MiB);
  std::memset(second.raw(), 7, (3_MiB).count());

  EXPECT_EQ(evict({first}), 2_MiB);
  EXPECT_EQ(*static_cast<char*>(second.raw()), 7);
  EXPECT_EQ(heap_->stats().reserved, 4_MiB);
  EXPECT_EQ(evict({second}), 4_MiB);
  EXPECT_EQ(heap_->stats().reserved, 0_B);
}

TEST_F(HeapEvictTest, ASharedChunkIsReleasedWithTheLastOfItsBlocks) {
  const auto first = allocate(1_MiB);
  const auto second = allocate(1_MiB);

  EXPECT_EQ(evict({first, second}), 2_MiB);
  EXPECT_TRUE(restore({second}).ok());
  EXPECT_TRUE(heap_->find(first).evicted);
  EXPECT_EQ(heap_->stats().reserved, 2_MiB);
  EXPECT_TRUE(restore({first, second}).ok());
  EXPECT_EQ(heap_->stats().reserved, 2_MiB);
}

TEST_F(HeapEvictTest, FreeMemoryOfAChunkIsReleasedAndRestoredWithIt) {
  const auto block = allocate(1_MiB);
  const auto host_syncs = driver::counters().host_syncs;

  EXPECT_EQ(evict({block}), 2_MiB);
  EXPECT_EQ(driver::counters().host_syncs, host_syncs + 1);
  EXPECT_EQ(heap_->stats().cached, 0_B);
  EXPECT_TRUE(restore({block}).ok());
  EXPECT_EQ(heap_->stats().cached, 1_MiB);
  EXPECT_EQ(allocate(1_MiB), block + 1_MiB);
}

TEST_F(HeapEvictTest, WithoutFreeMemoryInItsChunksNothingIsWaitedFor) {
  const auto block = allocate(4_MiB);
  const auto host_syncs = driver::counters().host_syncs;
  evict({block});
  EXPECT_TRUE(restore({block}).ok());

  EXPECT_EQ(driver::counters().host_syncs, host_syncs);
}

TEST_F(HeapEvictTest, TheAddressesOfAnEvictedBlockAreNotGivenToAnother) {
  const auto block = allocate(3_MiB);
  evict({block});

  const auto other = allocate(8_MiB);
  EXPECT_GE(other, block + 4_MiB);
  EXPECT_TRUE(restore({block}).ok());
}

TEST_F(HeapEvictTest, AFreedEvictedBlockLeavesRoomForGrowth) {
  const auto block = allocate(6_MiB);
  static_cast<void>(allocate(2_MiB));
  evict({block});
  free(block);
  EXPECT_EQ(heap_->view().check(), "");

  EXPECT_EQ(heap_->stats().reserved, 2_MiB);
  EXPECT_EQ(heap_->stats().evicted, 0_B);
  EXPECT_EQ(allocate(6_MiB), block);
}

TEST_F(HeapEvictTest, AFreedEvictedBlockLeavesTheMemoryItStillSharesFree) {
  const auto first = allocate(3_MiB);
  const auto second = allocate(1_MiB);
  evict({first});
  free(first);
  EXPECT_EQ(heap_->view().check(), "");

  EXPECT_EQ(heap_->stats().reserved, 2_MiB);
  EXPECT_EQ(heap_->stats().cached, 1_MiB);
  EXPECT_EQ(allocate(3_MiB), first);
  EXPECT_EQ(heap_->find(second).size, 1_MiB);
}

TEST_F(HeapEvictTest, FreedEvictedNeighborsLeaveOneGap) {
  const auto first = allocate(1_MiB);
  const auto second = allocate(1_MiB + 512_B);
  const auto third = allocate(2_MiB);
  evict({first, second, third});
  free(first);
  EXPECT_EQ(heap_->view().check(), "");
  free(third);
  EXPECT_EQ(heap_->view().check(), "");
  free(second);
  EXPECT_EQ(heap_->view().check(), "");

  EXPECT_EQ(heap_->view().segments().size(), 0U);
  EXPECT_EQ(allocate(16_MiB), first);
}

TEST_F(HeapEvictTest, ABlockThatIsNotAllocatedIsRejectedAndNothingIsEvicted) {
  const auto block = allocate(2_MiB);
  const std::array inside = {block, block + 512_B};

  EXPECT_EQ(heap_->evict(inside).status().code(), Code::kInvalidArgument);
  EXPECT_EQ(heap_->restore(inside).code(), Code::kInvalidArgument);
  EXPECT_FALSE(heap_->find(block).evicted);
}

TEST_F(HeapEvictTest, EvictingTwiceChangesNothing) {
  const auto block = allocate(4_MiB);
  evict({block});

  EXPECT_EQ(evict({block, block}), 0_B);
  EXPECT_TRUE(restore({block, block}).ok());
  EXPECT_TRUE(restore({block}).ok());
  EXPECT_EQ(heap_->stats().reserved, 4_MiB);
}

TEST_F(HeapEvictTest, IfNotAllBlocksCanBeRestoredNoneIs) {
  const auto first = allocate(4_MiB, main_);
  const auto second = allocate(4_MiB, side_);
  evict({first, second});
  heap_->limits().set_limit(6_MiB);

  EXPECT_EQ(restore({first, second}).code(), Code::kOutOfDeviceMemory);
  EXPECT_EQ(heap_->stats().reserved, 0_B);
  EXPECT_EQ(heap_->stats().evicted, 8_MiB);
  heap_->limits().set_limit(0_B);
  EXPECT_TRUE(restore({first, second}).ok());
}

TEST_F(HeapEvictTest, CachedMemoryIsReleasedForARestore) {
  const auto block = allocate(100_MiB);
  evict({block});
  free(allocate(200_MiB, side_));

  EXPECT_TRUE(restore({block}).ok());
  EXPECT_EQ(heap_->stats().reserved, 100_MiB);
}

TEST_F(HeapEvictTest, ARestoreThatFailsHalfWayLeavesTheBlocksEvicted) {
  const auto first = allocate(4_MiB);
  static_cast<void>(allocate(2_MiB));
  const auto second = allocate(4_MiB);
  evict({first, second});
  const auto used = spillway_emulator_used(0);
  const Fault<&driver::Api::MemSetAccess> fault(table_, 2, CUDA_ERROR_UNKNOWN);

  EXPECT_EQ(restore({first, second}).code(), Code::kDriver);
  EXPECT_EQ(spillway_emulator_used(0), used);
  EXPECT_TRUE(heap_->find(first).evicted);
  EXPECT_TRUE(restore({second, first}).ok());
}

TEST_F(HeapEvictTest, AChunkThatCannotBeUnmappedStays) {
  const auto block = allocate(2_MiB);
  const Fault<&driver::Api::MemUnmap> fault(table_, 1, CUDA_ERROR_UNKNOWN);

  EXPECT_EQ(evict({block}), 0_B);
  EXPECT_EQ(heap_->stats().reserved, 2_MiB);
  EXPECT_TRUE(restore({block}).ok());
}

TEST_F(HeapEvictTest, IfTheStreamCannotBeWaitedForAChunkWithFreeMemoryStays) {
  const auto whole = allocate(2_MiB);
  const auto part = allocate(1_MiB);
  const Fault<&driver::Api::EventSynchronize> fault(table_, 1, CUDA_ERROR_UNKNOWN);

  EXPECT_EQ(evict({whole, part}), 2_MiB);
  EXPECT_EQ(heap_->stats().reserved, 2_MiB);
  EXPECT_EQ(heap_->stats().cached, 1_MiB);
  EXPECT_TRUE(restore({whole, part}).ok());
}

TEST_F(HeapEvictTest, AChunkWithFreeMemoryThatGraphsWriteToStays) {
  const auto block = allocate_for_graphs(3_MiB);

  EXPECT_EQ(reclaimable(), 2_MiB);
  EXPECT_EQ(evict({block}), 2_MiB);
  EXPECT_EQ(heap_->stats().cached, 1_MiB);
}

TEST_F(HeapEvictTest, AChunkOfAReleasedPoolIsReleasedWithItsFreeMemory) {
  const auto block = allocate_for_graphs(3_MiB);
  heap_->release_pool(kGraph);

  EXPECT_EQ(reclaimable(), 4_MiB);
  EXPECT_EQ(evict({block}), 4_MiB);
}

TEST_F(HeapEvictTest, AStepThatEvictsAndRestoresKeepsOtherBytes) {
  const auto first = allocate(3_MiB);
  const auto kept = allocate(2_MiB);
  const auto last = allocate(5_MiB);
  std::memset(kept.raw(), 0x5A, (2_MiB).count());
  for (int i = 0; i < 4; ++i) {
    evict({first, last});
    EXPECT_TRUE(restore({first, last}).ok());
  }

  const std::vector<char> expected((2_MiB).count(), 0x5A);
  EXPECT_EQ(std::memcmp(kept.raw(), expected.data(), expected.size()), 0);
  EXPECT_EQ(heap_->stats().reserved, 10_MiB);
}

}  // namespace
}  // namespace spillway
