// SPDX-License-Identifier: Apache-2.0
#include "tests/heap/heap_fixture.h"

namespace spillway {
namespace {

/// A heap that may hold some memory rather than let streams wait.
class HeapTargetTest : public HeapTest {
 protected:
  /// A free block that a copy still reads.
  driver::DevicePtr freed_under_a_copy(Bytes size) {
    const auto block = allocate(size);
    EXPECT_TRUE(heap_->add_fence(block, stuck_fence()));
    free(block);
    return block;
  }

  [[nodiscard]] std::uint64_t waits() const { return heap_->stats().fence_waits; }
};

TEST_F(HeapTargetTest, StreamsWaitForCopiesRatherThanTheHeapGrowsBeyondItsTargetOrSoftLimit) {
  struct Case {
    Bytes target, soft_limit;
    bool waits;
  };

  for (const Case& each : {Case{16_MiB, 0_B, false},
                           Case{6_MiB, 0_B, true},
                           Case{16_MiB, 6_MiB, true},
                           Case{0_B, 0_B, true}}) {
    make_heap({});
    heap_->placement().set_target(16_MiB);
    heap_->placement().set_target(each.target);
    heap_->limits().set_soft_limit(each.soft_limit);
    const auto read = freed_under_a_copy(4_MiB);

    EXPECT_EQ(allocate(4_MiB) == read, each.waits);
    EXPECT_EQ(waits(), each.waits ? 1U : 0U);
    EXPECT_EQ(heap_->stats().reserved, each.waits ? 4_MiB : 8_MiB);
  }
}

TEST_F(HeapTargetTest, MemoryWithoutReadersIsReusedBesideMemoryThatACopyReads) {
  heap_->placement().set_target(16_MiB);
  const auto first = allocate(4_MiB);
  const auto second = allocate(4_MiB);  // beside it
  free_in_use(first);
  free(second);

  EXPECT_EQ(allocate(4_MiB), second);
  EXPECT_EQ(waits(), 0U);
  EXPECT_EQ(heap_->stats().reserved, 8_MiB);
}

TEST_F(HeapTargetTest, AdjacentFreePiecesServeARequestTogetherBeforeTheHeapGrows) {
  for (const Bytes target : {8_MiB, 0_B}) {
    make_heap({});
    heap_->placement().set_target(8_MiB);
    const auto first = allocate(4_MiB);
    const auto second = allocate(4_MiB);
    free_in_use(first);
    free(second);
    heap_->placement().set_target(target);

    EXPECT_EQ(allocate(8_MiB), first);
    EXPECT_EQ(waits(), 1U);
    EXPECT_EQ(heap_->stats().reserved, 8_MiB);
  }
}

TEST_F(HeapTargetTest, AnEmptyChunkIsReleasedEvenIfItIsSplit) {
  heap_->placement().set_target(16_MiB);
  const auto first = allocate(1_MiB);
  const auto second = allocate(1_MiB);  // of the same 2 MiB
  free_in_use(first);
  free(second);

  heap_->trim_sync();

  EXPECT_EQ(heap_->stats().reserved, 0_B);
}

TEST_F(HeapTargetTest, ASmallerTargetReleasesCachedMemoryAboveIt) {
  heap_->placement().set_target(16_MiB);
  free(allocate(12_MiB));

  heap_->placement().set_target(8_MiB);

  EXPECT_EQ(heap_->stats().reserved, 8_MiB) << "and nothing below it";
}

TEST_F(HeapTargetTest, ASmallerTargetWaitsForCopiesWhereTheyUseWhatExceedsIt) {
  heap_->placement().set_target(16_MiB);
  free_in_use(allocate(12_MiB));

  heap_->placement().set_target(8_MiB);

  EXPECT_LE(heap_->stats().reserved, 8_MiB);
}

TEST_F(HeapTargetTest, WhatExceedsItIsReleasedFromAllHeapRegions) {
  heap_->placement().set_target(32_MiB);
  const auto here = allocate(8_MiB);
  const auto there = allocate(8_MiB, side_);
  free(here);
  free(there);

  heap_->placement().set_target(4_MiB);

  EXPECT_LE(heap_->stats().reserved, 4_MiB);
}

TEST_F(HeapTargetTest, MemoryIsReleasedAFewTimesPerTarget) {
  for (int step = 0; step < 20; ++step) {
    heap_->placement().set_target(step % 2 == 0 ? 2_MiB : 4_MiB);
    free(allocate(12_MiB));
  }
  const auto releases = heap_->stats().driver_releases;

  heap_->placement().set_target(2_MiB);
  heap_->placement().set_target(4_MiB);

  EXPECT_GT(releases, 0U);
  EXPECT_EQ(heap_->stats().driver_releases, releases);
}

TEST_F(HeapTargetTest, ANewTargetIsTrimmedToRegardlessOfThePreviousOne) {
  heap_->placement().set_target(4_MiB);
  for (int each = 0; each < 8; ++each) {
    free(allocate(8_MiB));
    heap_->placement().set_target(4_MiB);
  }
  heap_->trim_sync();
  heap_->placement().set_target(8_MiB);  // nothing is held
  free(allocate(12_MiB));

  heap_->placement().set_target(8_MiB);

  EXPECT_EQ(heap_->stats().reserved, 8_MiB);
}

TEST_F(HeapTargetTest, ExcessReservedMemoryIsReleasedWhenTheStepEnds) {
  heap_->placement().set_target(8_MiB);
  const auto kept = allocate(4_MiB);
  free(allocate(12_MiB));
  EXPECT_EQ(heap_->stats().reserved, 16_MiB);

  heap_->placement().end_step();

  EXPECT_EQ(heap_->stats().reserved, 8_MiB) << "the next step uses the rest";
  free(kept);
}

TEST_F(HeapTargetTest, PersistentBlocksOfTheOptimizerPhaseStrandNoMemory) {
  for (const bool optimizing : {false, true}) {
    heap_->placement().set_target(1024_MiB);
    const auto goes = allocate(3_MiB);
    if (optimizing) heap_->placement().begin_optimizer_phase();
    const auto stays = allocate(2_MiB);
    free(goes);
    heap_->placement().end_step();
    heap_->trim_sync();

    EXPECT_EQ(heap_->stats().reserved, optimizing ? 2_MiB : 4_MiB);
    EXPECT_EQ(heap_->stats().stranded, optimizing ? 0_B : 2_MiB);
    free(stays);
    heap_->trim_sync();
  }
}

TEST_F(HeapTargetTest, TheOptimizerPhaseEndsWithItsStepOrTheNextTarget) {
  heap_->placement().set_target(1024_MiB);
  const auto first = allocate(3_MiB);
  free(first);
  for (const bool by_target : {false, true}) {
    heap_->placement().begin_optimizer_phase();
    EXPECT_NE(allocate(3_MiB), first);
    by_target ? heap_->placement().set_target(1024_MiB) : heap_->placement().end_step();
    const auto next = allocate(3_MiB);
    EXPECT_EQ(next, first);
    free(next);
    heap_->placement().set_target(1024_MiB);
  }
}

TEST_F(HeapTargetTest, AnOptimizerPhaseWithoutNewPersistentBlocksIsTreatedLikeTheStep) {
  Bytes size = 3_MiB;
  const auto in_optimizer_phase = [&](bool stays) {
    size += 1_MiB;  // so that no step is replayed
    heap_->placement().set_target(1024_MiB);
    const auto first = allocate(size);
    free(first);
    heap_->placement().begin_optimizer_phase();
    const auto made = allocate(size);
    if (!stays) free(made);
    heap_->placement().end_step();
    return made != first;
  };
  EXPECT_TRUE(in_optimizer_phase(false));  // no optimizer has run yet
  EXPECT_TRUE(in_optimizer_phase(true));
  EXPECT_TRUE(in_optimizer_phase(true));
  EXPECT_TRUE(in_optimizer_phase(false));
  EXPECT_FALSE(in_optimizer_phase(true));
}

TEST_F(HeapTargetTest, WithFewPagesOrNoTargetTheOptimizerPhaseIsTreatedLikeTheStep) {
  for (const Bytes target : {0_B, 1022_MiB}) {
    heap_->placement().set_target(target);
    const auto first = allocate(3_MiB);
    free(first);
    heap_->placement().begin_optimizer_phase();
    EXPECT_EQ(allocate(3_MiB), first);
    free(first);
  }
}

TEST_F(HeapTargetTest, WithFewPagesOrNoTargetStrandedMemoryIsNotReported) {
  for (const Bytes target : {0_B, 30_MiB}) {
    heap_->placement().set_target(target);
    EXPECT_EQ(heap_->placement().stranded_at_target(), std::nullopt);
  }
}

TEST_F(HeapTargetTest, StrandedMemoryIsReportedWhenTheTargetIsSet) {
  const auto goes = allocate(3_MiB);
  allocate(2_MiB);
  free(goes);

  heap_->placement().set_target(128_MiB);

  EXPECT_EQ(heap_->placement().stranded_at_target(),
            2_MiB);  // before it and behind it, in its chunks
}

TEST_F(HeapTargetTest, PiecesOfAChunkWithoutAnAllocatedBlockAreNotStranded) {
  heap_->placement().set_target(16_MiB);
  const auto first = allocate(3_MiB);
  const auto second = allocate(3_MiB);
  free_in_use(first);
  free(second);
  allocate(1_MiB);  // so that the pieces lie apart

  EXPECT_LT(heap_->stats().stranded, 2_MiB);
}

}  // namespace
}  // namespace spillway
