// SPDX-License-Identifier: Apache-2.0
#include "emulator/emulator.h"
#include "tests/heap/replay_fixture.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <random>
#include <thread>
#include <utility>
#include <vector>

namespace spillway {
namespace {

TEST_F(ReplayTest, TheSameStepGetsTheSameAddressesWithoutDriverCalls) {
  learn();
  EXPECT_EQ(replayed(), 0U);

  const Addresses third = step();
  const auto before = driver::counters();
  const Addresses fourth = step();
  const auto after = driver::counters();

  EXPECT_EQ(third, fourth);
  EXPECT_EQ(replayed(), 6U);
  EXPECT_EQ(mismatches(), 0U);
  EXPECT_EQ(after.allocations, before.allocations);
  EXPECT_EQ(after.host_syncs, before.host_syncs);
  EXPECT_EQ(heap_->stats().reserved, 6_MiB);  // the peak: 5 MiB and 64 KiB, in granules of 2 MiB
  EXPECT_EQ(heap_->view().check(), "");
}

TEST_F(ReplayTest, WithoutTheOptionNothingIsReplayed) {
  make_heap({});
  for (int i = 0; i < 4; ++i)
    step();

  EXPECT_EQ(replayed(), 0U);
}

TEST_F(ReplayTest, StepsThatNeverRepeatGetNoReplayPlan) {
  for (std::uint64_t i = 1; i < 6; ++i)
    step(Bytes{i * 1024});

  EXPECT_EQ(replayed(), 0U);
  EXPECT_EQ(mismatches(), 0U);
}

TEST_F(ReplayTest, ARequestOfAnotherSizeIsServedByTheHeapAndTheOthersByThePlan) {
  learn();
  const Addresses expected = step();

  const Addresses other = step(7_MiB);

  EXPECT_EQ(std::count(expected.begin(), expected.end(), other[0]), 0);
  EXPECT_EQ(other[1], expected[1]);
  EXPECT_EQ(other[2], expected[2]);
  EXPECT_EQ(mismatches(), 1U);
  EXPECT_EQ(step(), expected);
  EXPECT_EQ(mismatches(), 1U);
}

TEST_F(ReplayTest, AStepWithFewerOrMoreRequestsIsCountedAndServed) {
  learn();
  free(allocate(3_MiB));
  heap_->placement().end_step();
  EXPECT_EQ(mismatches(), 1U);

  for (const Bytes size : {3_MiB, 64_KiB, 5_MiB, 1_MiB}) {
    const auto at = allocate(size);
    EXPECT_NE(at, driver::DevicePtr{});
    free(at);
  }
  heap_->placement().end_step();
  EXPECT_EQ(mismatches(), 2U);
}

TEST_F(ReplayTest, AStepWithoutRequestsIsNoStep) {
  learn();
  heap_->placement().end_step();
  heap_->placement().end_step();

  EXPECT_EQ(mismatches(), 0U);
  step();
  EXPECT_EQ(replayed(), 3U);
}

TEST_F(ReplayTest, ABlockThatLivesLongerThanInTheReplayPlanKeepsItsAddress) {
  learn();
  const auto kept = allocate(3_MiB);  // free in the replay plan before the next request
  std::memset(kept.raw(), 0x5A, (3_MiB).count());
  const auto b = allocate(64_KiB);
  const auto c = allocate(5_MiB);
  std::memset(b.raw(), 1, (64_KiB).count());
  std::memset(c.raw(), 2, (5_MiB).count());

  EXPECT_EQ(mismatches(), 1U);
  const std::vector<char> expected((3_MiB).count(), 0x5A);
  EXPECT_EQ(std::memcmp(kept.raw(), expected.data(), expected.size()), 0);
}

TEST_F(ReplayTest, ABlockThatOutlivesItsStepKeepsItsAddressUntilItIsFreed) {
  learn();
  const Addresses expected = step();
  const auto a = allocate(3_MiB);
  free(a);
  free(allocate(64_KiB));
  const auto kept = allocate(5_MiB);
  ASSERT_EQ(kept, expected[2]);
  heap_->placement().end_step();

  const Addresses beside = step();
  EXPECT_EQ(std::count(beside.begin(), beside.end(), kept), 0);
  EXPECT_EQ(heap_->view().check(), "");
  EXPECT_EQ(mismatches(), 1U);
  free(kept);
  heap_->placement().end_step();

  EXPECT_EQ(step(), expected);
}

TEST_F(ReplayTest, BlocksThatAlwaysOutliveTheirStepAreNotInTheReplayPlan) {
  std::vector<driver::DevicePtr> last;
  const auto step_with_loss = [&] {
    const auto a = allocate(3_MiB);
    const auto loss = allocate(512_B);
    free(a);
    for (const driver::DevicePtr at : last)
      free(at);
    last = {loss};
    heap_->placement().end_step();
  };
  for (int i = 0; i < 6; ++i)
    step_with_loss();

  EXPECT_EQ(replayed(), 4U);
  EXPECT_EQ(mismatches(), 0U);
}

TEST_F(ReplayTest, BlocksUsedByAnotherStreamAreNotInTheReplayPlan) {
  for (int i = 0; i < 4; ++i) {
    const auto a = allocate(3_MiB);
    const auto b = allocate(1_MiB);
    heap_->record_use(a, side_);
    free(a);
    free(b);
    heap_->placement().end_step();
  }

  EXPECT_EQ(replayed(), 2U);
}

TEST_F(ReplayTest, ReuseOfAnAddressThatAnotherStreamStillUsesWaits) {
  learn();
  const auto a = allocate(3_MiB);
  free_in_use(a);
  EXPECT_EQ(heap_->stats().pending, 3_MiB);
  const auto waits = heap_->stats().fence_waits;
  const auto b = allocate(64_KiB);
  const auto c = allocate(5_MiB);

  EXPECT_TRUE((a <= b && b < a + 3_MiB) || (a < c + 5_MiB && c < a + 3_MiB));
  EXPECT_EQ(heap_->stats().fence_waits, waits + 1);
  EXPECT_EQ(heap_->stats().pending, 0_B);
  EXPECT_EQ(mismatches(), 0U);
  EXPECT_EQ(heap_->view().check(), "");
}

TEST_F(ReplayTest, AnAddressIsReusedWhenItsOtherUsesHavePassed) {
  learn();
  const auto a = allocate(3_MiB);
  heap_->add_fence(a, passed_fence());
  free(a);
  heap_->placement().end_step();

  EXPECT_EQ(step()[0], a);
  EXPECT_EQ(heap_->stats().pending, 0_B);
}

TEST_F(ReplayTest, OtherStreamsAreServedByTheHeap) {
  learn();
  const auto a = allocate(3_MiB);
  const auto other = allocate(64_KiB, side_);
  free(a);
  free(allocate(64_KiB));
  free(allocate(5_MiB));
  heap_->placement().end_step();

  EXPECT_EQ(heap_->find(other).stream, side_.handle());
  EXPECT_EQ(replayed(), 3U);
  EXPECT_EQ(mismatches(), 0U);
}

TEST_F(ReplayTest, AnEvictedReplayedBlockKeepsItsMemory) {
  learn();
  const auto a = allocate(3_MiB, main_, TagId{5});
  const std::vector<TagId> tags{TagId{5}};
  const std::vector<driver::DevicePtr> blocks{a};

  EXPECT_EQ(heap_->reclaimable(tags), 0_B);
  EXPECT_EQ(heap_->evict(blocks).value(), 0_B);
  EXPECT_EQ(heap_->stats().evicted, 3_MiB);
  EXPECT_EQ(heap_->view().check(), "");
  EXPECT_TRUE(heap_->restore(blocks).ok());
  EXPECT_EQ(heap_->stats().evicted, 0_B);
  ASSERT_TRUE(heap_->evict(blocks).ok());
  free(a);
  EXPECT_EQ(heap_->stats().evicted, 0_B);
}

TEST_F(ReplayTest, APinnedReplayedBlockIsFreedWhenItIsUnpinned) {
  learn();
  const auto a = allocate(3_MiB, main_, TagId{5});
  const std::vector<TagId> tags{TagId{5}};
  ASSERT_EQ(heap_->pin_blocks(tags, false).size(), 1U);
  free(a);
  EXPECT_EQ(heap_->stats().allocated, 3_MiB);

  EXPECT_EQ(heap_->unpin_blocks(std::vector{a}), std::vector{a});
  EXPECT_EQ(heap_->stats().allocated, 0_B);
}

TEST_F(ReplayTest, ATrimReleasesThePlansMemoryAndANewPlanIsMade) {
  learn();
  step();
  EXPECT_EQ(heap_->trim_sync(), 6_MiB);
  EXPECT_EQ(heap_->stats().reserved, 0_B);
  const auto before = replayed();
  for (int i = 0; i < 20 && replayed() == before; ++i)
    step();

  EXPECT_GT(replayed(), before);
}

TEST_F(ReplayTest, ATrimKeepsThePagesOfReplayedBlocks) {
  learn();
  free(allocate(3_MiB));
  const auto kept = allocate(64_KiB);
  heap_->trim_sync();

  EXPECT_EQ(heap_->stats().reserved, 2_MiB);
  EXPECT_EQ(heap_->view().check(), "");
  std::memset(kept.raw(), 1, (64_KiB).count());
}

TEST_F(ReplayTest, OtherStepsEndThePlanAndAnotherIsMade) {
  learn();
  step();
  const auto before = replayed();
  for (int i = 0; i < 12; ++i)
    step(7_MiB);
  EXPECT_LT(replayed(), before + std::uint64_t{12} * 3);
  const auto replayed_before = replayed();
  const auto mismatched = mismatches();
  step(7_MiB);

  EXPECT_EQ(replayed(), replayed_before + 3);
  EXPECT_EQ(mismatches(), mismatched);
}

TEST_F(ReplayTest, IfMemoryIsShortThePlansMemoryServesOtherRequests) {
  learn();
  heap_->limits().set_limit(8_MiB);
  const auto large = allocate(7_MiB);

  EXPECT_NE(large, driver::DevicePtr{});
  EXPECT_EQ(heap_->stats().reserved, 8_MiB);
  free(large);
  for (int i = 0; i < 4; ++i)
    step();
  EXPECT_EQ(replayed(), 0U);  // no more plans
}

TEST_F(ReplayTest, APlanThatHasNoMemoryIsLeftOut) {
  step();
  heap_->limits().set_limit(4_MiB);
  heap_->trim_sync();
  const auto a = heap_->allocate(3_MiB, main_, TagId::kUntagged);
  ASSERT_TRUE(a.ok());
  heap_->free(a.value());
  heap_->limits().set_limit(0_B);
  const Fault<&driver::Api::MemCreate> fault(table_, 4, CUDA_ERROR_OUT_OF_MEMORY);
  step();
  step();
  step();

  EXPECT_EQ(heap_->view().check(), "");
}

TEST_F(ReplayTest, FreesInAnotherOrderKeepTheAddresses) {
  learn();
  const Addresses expected = step();
  const auto a = allocate(3_MiB);
  free(a);
  const auto b = allocate(64_KiB);
  const auto c = allocate(5_MiB);
  free(c);
  free(b);
  heap_->placement().end_step();

  EXPECT_EQ((Addresses{a, b, c}), expected);
  EXPECT_EQ(mismatches(), 0U);
  EXPECT_EQ(replayed(), 6U);
  EXPECT_EQ(heap_->stats().allocated, 0_B);
  EXPECT_EQ(step(), expected);
}

TEST_F(ReplayTest, ABadFreeInAReplayedStepIsRejected) {
  learn();
  const auto a = allocate(3_MiB);
  EXPECT_FALSE(heap_->free(a + 512_B));
  EXPECT_TRUE(heap_->free(a));
  EXPECT_FALSE(heap_->free(a));
  allocated_.clear();

  EXPECT_EQ(heap_->stats().bad_frees, 2U);
  EXPECT_EQ(heap_->stats().allocated, 0_B);
  const auto b = allocate(64_KiB);
  EXPECT_EQ(heap_->find(b + 1_KiB).at, b);
  EXPECT_EQ(mismatches(), 0U);
}

TEST_F(ReplayTest, AnotherTagIsTheSameRequest) {
  learn();
  const Addresses expected = step();
  const auto a = allocate(3_MiB, main_, TagId{9});

  EXPECT_EQ(a, expected[0]);
  EXPECT_EQ(heap_->find(a).tag, TagId{9});
  EXPECT_EQ(mismatches(), 0U);
}

TEST_F(ReplayTest, ARequestOfAPoolIsNotReplayed) {
  learn();
  const auto pooled = heap_->allocate(3_MiB, main_, TagId::kUntagged, PoolId{1}).value();
  const Addresses expected = step();

  EXPECT_EQ(heap_->find(pooled).pool, PoolId{1});
  EXPECT_EQ(std::count(expected.begin(), expected.end(), pooled), 0);
  EXPECT_EQ(replayed(), 3U);
  heap_->free(pooled);
}

TEST_F(ReplayTest, ThreadsTakeTurnsInAReplayedStep) {
  learn();
  const Addresses expected = step();
  driver::DevicePtr a;
  driver::DevicePtr b;
  std::thread([&] { a = allocate(3_MiB); }).join();
  free(a);
  b = allocate(64_KiB);
  driver::DevicePtr c;
  std::thread([&] {
    c = allocate(5_MiB);
    free(b);
  }).join();
  free(c);
  heap_->placement().end_step();

  EXPECT_EQ((Addresses{a, b, c}), expected);
  EXPECT_EQ(replayed(), 6U);
}

}  // namespace
}  // namespace spillway
