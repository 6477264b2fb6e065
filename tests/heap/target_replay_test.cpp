// SPDX-License-Identifier: Apache-2.0
// Steps that repeat under a target: plans whose memory copies still use, and that outlives steps.
#include "tests/heap/heap_fixture.h"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

namespace spillway {
namespace {

/// A heap with a target, on steps as training makes them: a gradient that the next step frees, and
/// a block that is freed while a copy reads it.
class TargetReplayTest : public HeapTest {
 protected:
  using Addresses = std::vector<driver::DevicePtr>;

  Addresses step(Bytes last = 4_MiB) {
    heap_->placement().set_target(target_);
    if (gradient_ != driver::DevicePtr{}) free(gradient_);
    if (!batch_size_.zero()) {
      const auto before = std::exchange(batch_, allocate(batch_size_));
      if (before != driver::DevicePtr{}) free(before);
    }
    const auto offloaded = allocate(4_MiB);
    check();
    heap_->add_fence(offloaded, fence_);
    free(offloaded);
    const auto kept = allocate(6_MiB);
    const auto more = allocate(last);
    check();
    free(kept);
    if (!elsewhere_.zero()) free(allocate(elsewhere_, side_));
    gradient_ = allocate(4_MiB);
    check();
    free(more);
    heap_->placement().end_step();
    return {offloaded, kept, more, gradient_};
  }

  void check() const {
    if (!checked_) return;
    EXPECT_EQ(heap_->view().check(), "") << target_.count();
  }

  void steps(int count) {
    for (int i = 0; i < count; ++i)
      step();
  }

  void TearDown() override {
    for (const auto& left : {gradient_, batch_})
      if (left != driver::DevicePtr{}) free(left);
    HeapTest::TearDown();
  }

  std::uint64_t replayed() { return heap_->stats().replayed_allocations; }

  std::uint64_t mismatches() { return heap_->stats().replay_mismatches; }

  Bytes target_;
  bool checked_ = false;  // the heap, where its blocks are allocated
  Bytes elsewhere_;       // that another stream needs in each step
  driver::Fence fence_{};
  driver::DevicePtr gradient_{};
  Bytes batch_size_;  // allocated at the beginning of each step, before the previous one is freed
  driver::DevicePtr batch_{};
};

TEST_F(TargetReplayTest, StepsThatFitTheTargetAreReplayedAtTheSameAddresses) {
  for (const Bytes batch : {0_MiB, 2_MiB}) {  // a batch replaces the previous one in the next step
    target_ = 64_MiB;
    batch_size_ = batch;
    steps(4);
    const HeapStats before = heap_->stats();

    const Addresses planned = step();
    const std::uint64_t replayed_by_step = replayed() - before.replayed_allocations;

    EXPECT_EQ(step(), planned);  // also the gradient, which the next step frees
    EXPECT_EQ(replayed_by_step, 4U);
    EXPECT_EQ(heap_->stats().driver_allocations, before.driver_allocations);
    EXPECT_EQ(mismatches(), before.replay_mismatches);
    EXPECT_EQ(heap_->view().check(), "");
  }
}

TEST_F(TargetReplayTest, APlanThatFitsIsMappedBeforeItsFirstStep) {
  target_ = 64_MiB;
  steps(2);
  const HeapStats before = heap_->stats();
  EXPECT_LE(before.reserved, target_);

  step();

  EXPECT_EQ(replayed(), 4U);
  EXPECT_EQ(heap_->stats().driver_allocations, before.driver_allocations);
}

TEST_F(TargetReplayTest, APlanThatDoesNotFitAtOnceIsMappedDuringItsStep) {
  target_ = 64_MiB;
  steps(4);
  ASSERT_FALSE(heap_->placement().maps_plan());

  checked_ = true;
  int lazily = 0;
  for (target_ = 20_MiB; target_ >= 10_MiB; target_ = target_ - 2_MiB) {
    for (int i = 0; i < 6; ++i) {
      step(6_MiB);
      lazily += heap_->placement().maps_plan() ? 1 : 0;
    }
    steps(4);
  }

  EXPECT_GT(lazily, 0);
}

TEST_F(TargetReplayTest, TheHeapServesARequestThatCannotBeMappedAndThePlanTheRest) {
  int lazily = 0;
  for (target_ = 20_MiB; target_ >= 12_MiB; target_ = target_ - 2_MiB) {
    for (int i = 0; i < 6; ++i) {
      step(6_MiB);
      if (heap_->placement().maps_plan()) {
        const auto before = replayed();
        const Fault<&driver::Api::MemMap> fault(table_, 1, CUDA_ERROR_OUT_OF_MEMORY);
        step(6_MiB);
        EXPECT_GE(replayed(), before + 3);
        if (replayed() == before + 3) ++lazily;
      }
    }
  }
  EXPECT_GT(lazily, 0);
}

TEST_F(TargetReplayTest, APlanLeavesRoomForTwoBatches) {
  batch_size_ = 4_MiB;
  for (target_ = 28_MiB; target_ >= 18_MiB; target_ = target_ - 2_MiB) {
    const std::uint64_t before = replayed();
    for (int i = 0; i < 6; ++i) {
      fence_ = stuck_fence();  // so that a plan reuses no address while it has room
      step();
    }

    EXPECT_EQ(heap_->placement().double_buffered(), 4_MiB);
    EXPECT_GT(replayed(), before);
    EXPECT_LE(heap_->placement().peak_reserved_following_plan().value_or(64_MiB), target_);
  }
  EXPECT_EQ(heap_->view().check(), "");
}

/// Copies still read a freed block. The next user of its address waits for them only if the target
/// is no more than the peak, which is never exceeded.
TEST_F(TargetReplayTest, AStreamWaitsForACopyOnlyWithoutRoomForMoreThanThePeak) {
  for (const auto& [target, waits_for_copy] : {std::pair(64_MiB, false), std::pair(10_MiB, true)}) {
    fence_ = waits_for_copy ? stuck_fence() : passed_fence();
    target_ = target;
    steps(6);
    fence_ = stuck_fence();
    const auto waits = heap_->stats().fence_waits;

    step();

    EXPECT_EQ(heap_->stats().fence_waits > waits, waits_for_copy);
    EXPECT_LE(heap_->stats().reserved, target);
    EXPECT_EQ(mismatches(), 0U);
    EXPECT_EQ(heap_->view().check(), "");
  }
}

TEST_F(TargetReplayTest, ADivergingStepUsesThePlansMemoryBeforeTheTargetIsExceeded) {
  target_ = 10_MiB;
  steps(4);

  step(8_MiB);

  EXPECT_EQ(mismatches(), 1U);
  EXPECT_LE(heap_->stats().reserved, 14_MiB);  // what lives: 6 and 8
  EXPECT_EQ(heap_->view().check(), "");
  steps(4);
  EXPECT_EQ(heap_->stats().reserved, 10_MiB);
  EXPECT_EQ(mismatches(), 1U);
}

TEST_F(TargetReplayTest, AStepThatDiffersLittleKeepsThePlan) {
  target_ = 64_MiB;
  steps(4);
  const Addresses planned = step();
  for (int i = 0; i < 4; ++i) {
    const auto more = allocate(64_KiB);
    EXPECT_EQ(step(), planned);
    free(more);
  }

  EXPECT_EQ(mismatches(), 4U);
  EXPECT_EQ(step(), planned);
  EXPECT_EQ(heap_->view().check(), "");
}

TEST_F(TargetReplayTest, ABlockThatOutlivesAPlanDoesNotPreventTheNextOne) {
  target_ = 64_MiB;
  steps(4);
  heap_->placement().set_target(target_);
  free(std::exchange(gradient_, driver::DevicePtr{}));
  const auto before = replayed();
  const auto outlives = allocate(4_MiB);
  ASSERT_EQ(replayed(), before + 1);
  heap_->placement().end_step();
  EXPECT_EQ(mismatches(), 1U);
  for (int i = 0; i < 6; ++i)
    step(12_MiB);
  const auto replayed_before = replayed();

  const Addresses planned = step(12_MiB);

  EXPECT_EQ(replayed(), replayed_before + 4);
  EXPECT_EQ(step(12_MiB), planned);
  free(outlives);
  heap_->trim_sync();
  EXPECT_EQ(heap_->view().check(), "");
}

TEST_F(TargetReplayTest, ARequestThatDiffersGetsThePlansMemoryWhereOtherIsShort) {
  Bytes reserved;
  const auto step_of = [&](Bytes last) {
    heap_->placement().set_target(40_MiB);
    heap_->limits().set_budget(40_MiB);
    free(allocate(32_MiB));
    const auto kept = allocate(16_MiB);
    const auto more = allocate(last);
    reserved = heap_->stats().reserved;
    free(kept);
    free(more);
    heap_->placement().end_step();
  };
  for (int i = 0; i < 4; ++i)
    step_of(16_MiB);
  ASSERT_GT(replayed(), 0U);

  step_of(18_MiB);

  EXPECT_LE(reserved, 40_MiB);
}

TEST_F(TargetReplayTest, ABlockThatOutlivesAPlanCostsNoHostWaits) {
  target_ = 40_MiB;
  steps(4);
  const auto outlives = allocate(4_MiB);
  ASSERT_GT(replayed(), 0U);
  heap_->placement().end_step();
  heap_->placement().set_target(target_);
  for (int i = 0; i < 12; ++i)
    allocate(4_MiB);
  const auto before = driver::counters().host_syncs;
  for (int i = 0; i < 4; ++i)
    allocate(4_MiB);

  EXPECT_EQ(driver::counters().host_syncs, before);
  free(outlives);
}

TEST_F(TargetReplayTest, APlanThatCannotEndBecauseOfACaptureIsFollowed) {
  target_ = 64_MiB;
  steps(4);
  const auto is_capturing = table_.StreamIsCapturing;
  table_.StreamIsCapturing = [](CUstream, CUstreamCaptureStatus* status) {
    *status = CU_STREAM_CAPTURE_STATUS_ACTIVE;
    return CUDA_SUCCESS;
  };
  heap_->placement().set_target(40_MiB);
  heap_->placement().end_step();
  table_.StreamIsCapturing = is_capturing;
  const auto before = replayed();

  step();
  step();

  EXPECT_EQ(replayed(), before + 8);
  EXPECT_EQ(mismatches(), 0U);
}

TEST_F(TargetReplayTest, IfNoPlanFitsTheSmallestIsFollowed) {
  target_ = 8_MiB;
  for (int i = 0; i < 50 && replayed() == 0; ++i)
    step();

  EXPECT_GT(replayed(), 0U);
}

/// A budget of the job, or set for each step.
class NoRoomForAPlanTest : public TargetReplayTest, public ::testing::WithParamInterface<bool> {};

INSTANTIATE_TEST_SUITE_P(BudgetOfJob, NoRoomForAPlanTest, ::testing::Bool());

TEST_P(NoRoomForAPlanTest, ThePlanIsNotFollowedButWhatItLacksIsKnown) {
  target_ = 10_MiB;
  if (GetParam()) heap_->limits().hold_budget(target_);
  const auto beside = allocate(1_MiB);
  free(allocate(1_MiB));  // a gap next to it, which a plan has no use for
  int missing = 0;
  for (int i = 0; i < 64; ++i) {
    heap_->placement().set_target(target_);
    if (!GetParam()) heap_->limits().set_budget(target_);
    const auto small = allocate(1_MiB);
    free(allocate(8_MiB));
    free(small);
    missing += heap_->placement().missing_for_plan().zero() ? 0 : 1;
    heap_->placement().end_step();
  }
  EXPECT_EQ(replayed(), 0U);
  EXPECT_EQ(mismatches(), 0U);
  EXPECT_GT(missing, 1);
  EXPECT_LT(missing, 10);  // ever more rarely
  EXPECT_LE(heap_->stats().reserved, target_);
  free(beside);
}

/// A step of two blocks, of which the second one lives until the next step, as many in a row.
class OneGradientTest : public HeapTest {
 protected:
  void step(Bytes gradient, Bytes more = {}) {
    if (gradient_ != driver::DevicePtr{}) free(gradient_);
    heap_->placement().set_target(6_MiB);
    free(allocate(6_MiB));
    gradient_ = allocate(gradient);
    if (!more.zero()) free(allocate(more));
    heap_->placement().end_step();
  }

  driver::DevicePtr gradient_{};
};

TEST_F(OneGradientTest, BlocksFreedInTheNextStepWasteNoRoom) {
  for (int i = 0; i < 4; ++i)
    step(3_MiB);

  EXPECT_EQ(heap_->stats().replayed_allocations, 4U);
}

TEST_F(TargetReplayTest, AfterOutOfMemoryANewPlanIsMade) {
  target_ = 10_MiB;
  steps(4);
  heap_->limits().set_limit(10_MiB);
  const auto big = heap_->allocate(32_MiB, main_, TagId::kUntagged);
  EXPECT_FALSE(big.ok());
  const auto before = replayed();

  steps(4);

  EXPECT_GT(replayed(), before);
}

TEST_F(TargetReplayTest, OnlyStepsWithATargetHaveAReplayPlan) {
  steps(4);
  EXPECT_EQ(replayed(), 0U);
  target_ = 64_MiB;
  steps(4);
  const auto before = replayed();
  EXPECT_GT(before, 0U);
  target_ = 0_B;
  steps(4);
  EXPECT_LE(replayed(), before + 4);  // the first one may have followed it
  target_ = 64_MiB;
  steps(5);
  EXPECT_GT(replayed(), before + 4);
  EXPECT_EQ(heap_->view().check(), "");
}

/// A step whose blocks fit what lives at one time only where the sixth lies in pages that are
/// apart.
TEST_F(TargetReplayTest, ABlockMayHavePagesThatAreNotAdjacent) {
  const std::vector<std::uint64_t> granules{1, 2, 3, 2, 1, 3, 2, 1, 3};
  const std::vector<std::size_t> freed_before{1, 4, 6, 5, 7, 6, 9, 8, 9};  // that request is made
  Addresses blocks;
  for (int i = 0; i < 4; ++i) {
    heap_->placement().set_target(14_MiB);
    blocks.clear();
    for (std::size_t next = 0; next <= granules.size(); ++next) {
      for (std::size_t each = 0; each < next; ++each)
        if (freed_before[each] == next) free(blocks[each]);
      if (next == granules.size()) break;
      blocks.push_back(allocate(Bytes{granules[next] * (2_MiB).count()}));
      EXPECT_EQ(heap_->view().check(), "");
      EXPECT_EQ(heap_->find(blocks[next] + 1_MiB).at, blocks[next]);
    }
    heap_->placement().end_step();
  }

  EXPECT_EQ(replayed(), 2 * granules.size());
  EXPECT_EQ(heap_->stats().reserved, 14_MiB);
  EXPECT_GE(blocks[5], *std::min_element(blocks.begin(), blocks.end()) + 14_MiB);
  EXPECT_EQ(heap_->stats().cached, 14_MiB);
  heap_->trim_sync();
  EXPECT_EQ(heap_->stats().reserved, 0_B);
  EXPECT_EQ(heap_->view().check(), "");
}

}  // namespace
}  // namespace spillway
