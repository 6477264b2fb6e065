// SPDX-License-Identifier: Apache-2.0
// Model state that streams through the device, beside other blocks.
#include "tests/heap/heap_fixture.h"

namespace spillway {
namespace {

class HeapStreamingTest : public HeapTest {
 protected:
  static constexpr Bytes kBudget = 16_MiB;

  /// A pass begins, within the budget.
  void begin_pass(bool streams) {
    heap_->placement().set_streaming(streams);
    heap_->placement().set_target(kBudget);
    heap_->limits().set_budget(kBudget);
  }

  Result<driver::DevicePtr> fetch(Bytes size) {
    auto block =
        heap_->allocate(size, main_, TagId::kUntagged, PoolId::kShared, BlockUse::kStreamed);
    if (block.ok()) allocated_.push_back(block.value());
    return block;
  }

  [[nodiscard]] std::uint64_t mapped() const { return heap_->view().mapping_changes(); }
};

TEST_F(HeapStreamingTest, InAPassOtherBlocksKeepTheirCachedMemory) {
  for (const bool streams : {false, true}) {
    make_heap({});
    begin_pass(streams);
    ASSERT_TRUE(fetch(11_MiB).ok());
    const auto other = allocate(4_MiB);
    free(other);
    const std::uint64_t before = mapped();

    const auto fetched = fetch(4_MiB);
    EXPECT_EQ(fetched.ok(), !streams);
    if (!streams) continue;
    EXPECT_EQ(fetched.status().code(), Code::kOutOfDeviceMemory);
    EXPECT_EQ(allocate(4_MiB), other);
    EXPECT_EQ(mapped(), before);
  }
}

TEST_F(HeapStreamingTest, BetweenPassesStreamedBlocksUseCachedMemoryAsItIsMapped) {
  begin_pass(true);
  const auto other = allocate(12_MiB);
  free(other);
  heap_->placement().begin_optimizer_phase();
  ASSERT_TRUE(fetch(4_MiB).ok());  // for which there is room
  const std::uint64_t before = mapped();

  const auto fetched = fetch(8_MiB);
  ASSERT_TRUE(fetched.ok());
  EXPECT_EQ(fetched.value(), other);
  EXPECT_EQ(mapped(), before);
  EXPECT_FALSE(heap_->find(fetched.value()).apart);
}

TEST_F(HeapStreamingTest, OtherBlocksDoNotUseTheRestOfAChunkWithStreamedOnes) {
  for (const bool streams : {false, true}) {
    make_heap({});
    begin_pass(true);
    ASSERT_TRUE(fetch(15_MiB).ok());
    ASSERT_EQ(heap_->stats().reserved, kBudget);
    heap_->placement().set_streaming(streams);
    const auto other = heap_->allocate(512_KiB, main_, TagId::kUntagged);
    EXPECT_EQ(other.ok(), !streams);
    if (other.ok()) heap_->free(other.value());
  }
}

TEST_F(HeapStreamingTest, InAPassStreamedBlocksUseTheirOwnCachedMemoryWhereverItIs) {
  begin_pass(true);
  const auto first = fetch(4_MiB).value();
  ASSERT_TRUE(fetch(4_MiB).ok());
  const auto third = fetch(4_MiB).value();
  ASSERT_TRUE(fetch(4_MiB).ok());
  free(first);
  free(third);
  EXPECT_TRUE(fetch(8_MiB).ok());
  EXPECT_LE(heap_->stats().reserved, kBudget);
}

TEST_F(HeapStreamingTest, InAPassStreamedBlocksUseCachedMemoryOfOthersIfThatIsMuch) {
  begin_pass(true);
  const auto other = allocate(6_MiB);
  ASSERT_TRUE(fetch(10_MiB).ok());
  free(other);
  const auto fetched = fetch(4_MiB);
  ASSERT_TRUE(fetched.ok());
  EXPECT_EQ(fetched.value(), other);
}

TEST_F(HeapStreamingTest, ARequestThatFailedSucceedsOnceCachedMemoryIsReleased) {
  begin_pass(true);
  const auto other = allocate(4_MiB);
  ASSERT_TRUE(fetch(12_MiB).ok());
  free(other);
  EXPECT_FALSE(fetch(4_MiB).ok());
  heap_->trim_sync();
  EXPECT_TRUE(fetch(4_MiB).ok());
  EXPECT_LE(heap_->stats().reserved, kBudget);
}

TEST_F(HeapStreamingTest, AFullDeviceIsNoReasonToKeepCachedMemory) {
  heap_->placement().set_streaming(true);
  heap_->placement().set_target(kBudget);
  heap_->limits().set_limit(kBudget);  // without a budget, the caller offloads nothing
  free(allocate(16_MiB));
  EXPECT_TRUE(fetch(8_MiB).ok());
}

TEST_F(HeapStreamingTest, StepsAreReplayedOnlyWhileNothingStreams) {
  const auto replayed_by_steps = [&](bool streams) {
    const std::uint64_t before = heap_->stats().replayed_allocations;
    for (int step = 0; step < 5; ++step) {
      begin_pass(streams);
      const auto one = allocate(3_MiB);
      const auto two = allocate(2_MiB);
      free(one);
      free(two);
      heap_->placement().end_step();
    }
    return heap_->stats().replayed_allocations - before;
  };
  EXPECT_GT(replayed_by_steps(false), 0U);
  heap_->placement().set_streaming(true);
  replayed_by_steps(true);  // the first one of these follows the plan to its end
  EXPECT_EQ(replayed_by_steps(true), 0U);
  EXPECT_GT(replayed_by_steps(false), 0U);
}

/// Model state comes and goes, another part of it in each step.
TEST_F(HeapStreamingTest, StepsAreReplayedWithoutStreamedBlocksWhereTheseAreLeftOut) {
  for (const bool without : {false, true}) {
    heap_->placement().replay_without_streamed(without);
    const HeapStats before = heap_->stats();
    for (std::uint64_t step = 1; step <= 6; ++step) {
      const auto streamed = fetch(Bytes{step << 20U});
      ASSERT_TRUE(streamed.ok());
      heap_->placement().set_target(64_MiB);
      const auto one = allocate(3_MiB);
      const auto two = allocate(2_MiB);
      free(one);
      free(two);
      heap_->placement().end_step();
      free(streamed.value());
      EXPECT_EQ(heap_->view().check(), "");
    }
    EXPECT_EQ(heap_->stats().replayed_allocations > before.replayed_allocations, without);
    EXPECT_EQ(heap_->stats().replay_mismatches, 0U);
  }
}

}  // namespace
}  // namespace spillway
