// SPDX-License-Identifier: Apache-2.0
#include "allocator/heap/deferred_waits.h"
#include "emulator/emulator.h"
#include "tests/heap/heap_fixture.h"

#include <utility>

namespace spillway {
namespace {

class HeapFencesTest : public HeapTest {
 protected:
  /// Free blocks of 4 MiB that lie apart, each of which a later copy than the one before reads.
  std::vector<driver::DevicePtr> read_by_copies(int count) {
    driver::Timeline& copies = timeline(stuck_table_);
    std::vector<driver::DevicePtr> blocks;
    for (int each = 0; each < count; ++each) {
      blocks.push_back(allocate(4_MiB));
      static_cast<void>(allocate(2_MiB));
    }
    for (const auto block : blocks) {
      heap_->add_fence(block, copies.mark().value());
      free(block);
    }
    return blocks;
  }
};

TEST_F(HeapFencesTest, AFencedBlockIsHandedOutAgainWithAStreamWaitAndNoHostWait) {
  const auto block = allocate(4_MiB);
  ASSERT_TRUE(heap_->add_fence(block + 1_MiB, stuck_fence()));
  free(block);
  const auto host_syncs = driver::counters().host_syncs;

  EXPECT_EQ(heap_->stats().pending, 4_MiB);
  EXPECT_EQ(allocate(4_MiB), block);
  EXPECT_EQ(heap_->stats().fence_waits, 1U);
  EXPECT_EQ(heap_->stats().pending, 0_B);
  EXPECT_EQ(driver::counters().host_syncs, host_syncs);
}

TEST_F(HeapFencesTest, DeferredWaitsGetTheFencesOfABlockInsteadOfItsStream) {
  const auto block = allocate(4_MiB);
  const driver::Fence fence = free_in_use(block);
  {
    const DeferredWaits waits;
    EXPECT_EQ(allocate(2_MiB), block);
    EXPECT_EQ(waits.fences(), driver::FenceSet{fence});
    EXPECT_EQ(heap_->stats().fence_waits, 0U);
  }
  // The rest of the block keeps the fence, and streams wait again.
  EXPECT_EQ(heap_->stats().pending, 2_MiB);
  EXPECT_EQ(allocate(2_MiB), block + 2_MiB);
  EXPECT_EQ(heap_->stats().fence_waits, 1U);
  EXPECT_EQ(heap_->stats().pending, 0_B);
  EXPECT_EQ(heap_->view().check(), "");
}

TEST_F(HeapFencesTest, DeferredWaitsGetTheFencesOfTheMemoryThatJoinsGrowth) {
  const auto tail = allocate(4_MiB);
  const driver::Fence fence = free_in_use(tail);
  const DeferredWaits waits;

  EXPECT_EQ(allocate(6_MiB), tail);

  EXPECT_EQ(waits.fences(), driver::FenceSet{fence});
  EXPECT_EQ(heap_->stats().fence_waits, 0U);
  EXPECT_EQ(heap_->stats().pending, 0_B);
  EXPECT_EQ(heap_->view().check(), "");
}

TEST_F(HeapFencesTest, AFenceThatHasPassedCostsNoWait) {
  const auto block = allocate(4_MiB);
  heap_->add_fence(block, passed_fence());
  free(block);

  EXPECT_EQ(allocate(4_MiB), block);
  EXPECT_EQ(heap_->stats().fence_waits, 0U);
}

TEST_F(HeapFencesTest, AmongEqualSizesABlockThatHasPassedIsPreferredWhicheverWasFreedLast) {
  for (const bool waiting_last : {false, true}) {
    const auto waiting = allocate(4_MiB);
    static_cast<void>(allocate(2_MiB));
    const auto ready = allocate(4_MiB);
    static_cast<void>(allocate(2_MiB));
    heap_->add_fence(waiting, stuck_fence());
    heap_->add_fence(ready, passed_fence());
    free(waiting_last ? ready : waiting);
    free(waiting_last ? waiting : ready);
    const auto waits = heap_->stats().fence_waits;

    EXPECT_EQ(allocate(4_MiB), ready);
    EXPECT_EQ(heap_->stats().fence_waits, waits);
    EXPECT_EQ(allocate(4_MiB), waiting);
  }
}

TEST_F(HeapFencesTest, AmongEqualSizesThatCopiesReadTheOneWhoseCopyIsTheEarliestIsWaitedFor) {
  const auto blocks = read_by_copies(8);

  EXPECT_EQ(allocate(4_MiB), blocks[0]);
  EXPECT_EQ(allocate(4_MiB), blocks[1]);
}

TEST_F(HeapFencesTest, TheDriverIsAskedAboutTheEarliestCopyAloneHoweverManyBlocksAreRead) {
  static int asked = 0;
  stuck_table_.EventQuery = [](CUevent) {
    ++asked;
    return CUDA_ERROR_NOT_READY;
  };
  read_by_copies(12);
  asked = 0;

  static_cast<void>(allocate(4_MiB));

  EXPECT_LE(asked, 4);
}

TEST_F(HeapFencesTest, AMergedBlockWaitsForTheFencesOfItsParts) {
  const auto first = allocate(2_MiB);
  const auto second = allocate(2_MiB);
  heap_->add_fence(first, stuck_fence());
  heap_->add_fence(second, stuck_fence());
  free(first);
  free(second);

  EXPECT_EQ(heap_->stats().pending, 4_MiB);
  EXPECT_EQ(allocate(4_MiB), first);
  EXPECT_EQ(heap_->stats().fence_waits, 2U);
}

TEST_F(HeapFencesTest, OnlyTheLatestFenceOfATimelineIsWaitedFor) {
  const auto block = allocate(4_MiB);
  driver::Timeline& copies = timeline(stuck_table_);
  heap_->add_fence(block, copies.mark().value());
  heap_->add_fence(block, copies.mark().value());
  free(block);

  EXPECT_EQ(allocate(4_MiB), block);
  EXPECT_EQ(heap_->stats().fence_waits, 1U);
}

TEST_F(HeapFencesTest, AnEarlierFenceDoesNotReplaceALaterOne) {
  const auto block = allocate(4_MiB);
  driver::Timeline& copies = timeline(table_);
  const driver::Fence early = copies.mark().value();
  ASSERT_TRUE(driver::Timeline::passed(early));
  table_.EventQuery = stuck_table_.EventQuery;
  heap_->add_fence(block, copies.mark().value());
  heap_->add_fence(block, early);
  free(block);

  EXPECT_EQ(allocate(4_MiB), block);
  EXPECT_EQ(heap_->stats().fence_waits, 1U);
}

TEST_F(HeapFencesTest, GrowthWaitsForTheFencesOfTheTailItUses) {
  const auto tail = allocate(4_MiB);
  free_in_use(tail);

  EXPECT_EQ(allocate(6_MiB), tail);
  EXPECT_EQ(heap_->stats().reserved, 6_MiB);
  EXPECT_EQ(heap_->stats().fence_waits, 1U);
}

TEST_F(HeapFencesTest, TheStreamThatHasWaitedNeedsNoSecondWaitForTheRest) {
  const auto block = allocate(8_MiB);
  free_in_use(block);

  EXPECT_EQ(allocate(4_MiB), block);
  EXPECT_EQ(allocate(4_MiB), block + 4_MiB);
  EXPECT_EQ(heap_->stats().fence_waits, 1U);
}

TEST_F(HeapFencesTest, AFenceOrUseOnTheBlocksOwnStreamIsNoReasonToWait) {
  const auto block = allocate(4_MiB, side_);
  heap_->add_fence(block, stuck_fence());
  ASSERT_TRUE(heap_->record_use(block, side_));
  free(block);

  EXPECT_EQ(heap_->stats().pending, 0_B);
  EXPECT_EQ(allocate(4_MiB, side_), block);
  EXPECT_EQ(heap_->stats().fence_waits, 0U);
}

TEST_F(HeapFencesTest, ABlockThatAnotherStreamUsedIsHandedOutAfterThatStream) {
  table_.EventQuery = stuck_table_.EventQuery;
  const auto block = allocate(4_MiB);
  ASSERT_TRUE(heap_->record_use(block, side_));
  ASSERT_TRUE(heap_->record_use(block, side_));
  free(block);

  EXPECT_EQ(heap_->stats().pending, 4_MiB);
  EXPECT_EQ(allocate(4_MiB), block);
  EXPECT_EQ(heap_->stats().fence_waits, 1U);
}

TEST_F(HeapFencesTest, TheDefaultStreamOfAnotherDeviceIsAnotherStream) {
  table_.EventQuery = stuck_table_.EventQuery;
  const driver::Stream here(CUstream{nullptr}, DeviceId{0});
  const driver::Stream there(CUstream{nullptr}, DeviceId{1});
  const auto block = allocate(4_MiB, here);
  ASSERT_TRUE(heap_->record_use(block, here));
  ASSERT_TRUE(heap_->record_use(block, there));
  free(block);

  EXPECT_EQ(heap_->stats().pending, 4_MiB);
  EXPECT_EQ(allocate(4_MiB, here), block);
  EXPECT_EQ(heap_->stats().fence_waits, 1U);
}

TEST_F(HeapFencesTest, ManyFreesShareOneMarker) {
  table_.EventQuery = stuck_table_.EventQuery;
  std::vector<driver::DevicePtr> blocks;
  for (int i = 0; i < 50; ++i) {
    blocks.push_back(allocate(2_MiB));
    heap_->record_use(blocks.back(), side_);
  }
  const auto records = spillway_emulator_count("cuEventRecord");
  for (const driver::DevicePtr block : blocks)
    free(block);
  EXPECT_EQ(spillway_emulator_count("cuEventRecord"), records);
  static_cast<void>(allocate(100_MiB));

  EXPECT_EQ(spillway_emulator_count("cuEventRecord"), records + 1);
}

TEST_F(HeapFencesTest, NoMarkerIsRecordedIntoACapture) {
  const auto block = allocate(4_MiB);
  heap_->record_use(block, side_);
  const auto capturing =
      std::exchange(table_.StreamIsCapturing, [](CUstream, CUstreamCaptureStatus* status) {
        *status = CU_STREAM_CAPTURE_STATUS_ACTIVE;
        return CUDA_SUCCESS;
      });
  const auto records = spillway_emulator_count("cuEventRecord");
  free(block);
  const auto during = allocate(4_MiB);
  table_.StreamIsCapturing = capturing;

  EXPECT_NE(during, block);
  EXPECT_EQ(spillway_emulator_count("cuEventRecord"), records);
  EXPECT_EQ(allocate(4_MiB), block);
}

TEST_F(HeapFencesTest, ANewOwnersBlockCarriesNothingOfTheOldOnes) {
  table_.EventQuery = stuck_table_.EventQuery;
  const auto block = allocate(4_MiB, main_, TagId{5});
  heap_->record_use(block, side_);
  free(block);
  EXPECT_EQ(allocate(4_MiB), block);
  EXPECT_EQ(heap_->find(block).tag, TagId::kUntagged);
  EXPECT_FALSE(heap_->find(block).fenced);
  free(block);

  EXPECT_EQ(heap_->stats().pending, 0_B);
}

}  // namespace
}  // namespace spillway
