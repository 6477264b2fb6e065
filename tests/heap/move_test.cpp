// SPDX-License-Identifier: Apache-2.0
// Memory that moves to other addresses of its stream, to stay within a heap's target.
#include "allocator/heap/deferred_waits.h"
#include "emulator/emulator.h"
#include "tests/heap/heap_fixture.h"

#include <initializer_list>
#include <vector>

namespace spillway {
namespace {

struct Hole {
  Bytes size;
  bool copied = false;
};

struct Counts {
  int host_waits = 0;
  int stream_waits = 0;
  int unmaps = 0;
  int releases = 0;
};

/// Counts waits of the host and of streams, and the calls that end mappings and chunks. No query
/// sees an event to have passed until `passed_` is set.
class MoveTest : public HeapTest {
 protected:
  void SetUp() override {
    counts_ = {};
    passed_ = false;
    HeapTest::SetUp();
    table_.EventQuery = [](CUevent) {
      return passed_ ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
    };
    table_.EventSynchronize = [](CUevent event) {
      ++counts_.host_waits;
      return driver::api().value()->EventSynchronize(event);
    };
    table_.StreamWaitEvent = [](CUstream stream, CUevent event, unsigned flags) {
      ++counts_.stream_waits;
      return driver::api().value()->StreamWaitEvent(stream, event, flags);
    };
    table_.MemUnmap = [](CUdeviceptr at, std::size_t bytes) {
      ++counts_.unmaps;
      return refuses_ ? CUDA_ERROR_UNKNOWN : driver::api().value()->MemUnmap(at, bytes);
    };
    table_.MemRelease = [](CUmemGenericAllocationHandle chunk) {
      ++counts_.releases;
      return driver::api().value()->MemRelease(chunk);
    };
    refuses_ = false;
  }

  /// Freed blocks of these sizes between allocated ones. If `copied`, one on `side_` still reads
  /// it.
  std::vector<driver::DevicePtr> make_holes(std::initializer_list<Hole> holes) {
    std::vector<driver::DevicePtr> blocks;
    for (const Hole& hole : holes) {
      blocks.push_back(allocate(hole.size));
      allocate(2_MiB);
    }
    const auto* hole = holes.begin();
    for (const driver::DevicePtr at : blocks) {
      if ((hole++)->copied) heap_->add_fence(at, stuck_fence());
      free(at);
    }
    return blocks;
  }

  driver::DevicePtr allocate_within_reserved(Bytes size) {
    heap_->placement().set_target(heap_->stats().reserved);
    return allocate(size);
  }

  static inline Counts counts_;
  static inline bool passed_ = false;
  static inline bool refuses_ = false;
};

TEST_F(MoveTest, NothingWaitsAndNothingIsUnmappedOrReleased) {
  make_holes({{2_MiB}, {2_MiB}});
  const auto before = spillway_emulator_used(0);

  allocate_within_reserved(4_MiB);

  EXPECT_EQ(counts_.host_waits, 0);
  EXPECT_EQ(counts_.stream_waits, 0);
  EXPECT_EQ(counts_.unmaps, 0);
  EXPECT_EQ(counts_.releases, 0);
  EXPECT_EQ(heap_->stats().cached, 0_B);
  EXPECT_EQ(spillway_emulator_used(0), before);
}

TEST_F(MoveTest, FormerMappingsEndAtALaterMoveOnceTheDeviceHasFinishedWithThem) {
  make_holes({{2_MiB}, {2_MiB}});
  allocate_within_reserved(4_MiB);
  EXPECT_EQ(counts_.unmaps, 0);

  passed_ = true;
  make_holes({{2_MiB}, {2_MiB}});
  allocate_within_reserved(4_MiB);

  EXPECT_EQ(counts_.host_waits, 0);
  EXPECT_GE(counts_.unmaps, 2);
}

TEST_F(MoveTest, MemoryWithoutPendingUsesMovesBeforeABlockThatACopyReadsIsHandedOut) {
  const auto read = make_holes({{4_MiB}, {6_MiB, true}, {2_MiB}}).at(1);

  EXPECT_NE(allocate_within_reserved(6_MiB), read);

  EXPECT_EQ(counts_.host_waits, 0);
  EXPECT_EQ(counts_.stream_waits, 0);
  EXPECT_EQ(heap_->stats().pending, 6_MiB);
}

TEST_F(MoveTest, WhereTooLittleCanMoveNothingDoes) {
  const auto read = make_holes({{2_MiB}, {6_MiB, true}}).at(1);

  EXPECT_EQ(allocate_within_reserved(6_MiB), read);

  EXPECT_EQ(counts_.host_waits, 0);
  EXPECT_EQ(heap_->stats().fence_waits, 1U);
  EXPECT_EQ(heap_->stats().cached, 2_MiB);
}

TEST_F(MoveTest, MemoryThatACopyReadsMovesAfterAWaitOfItsStream) {
  make_holes({{2_MiB, true}, {2_MiB, true}});

  allocate_within_reserved(4_MiB);

  EXPECT_EQ(counts_.host_waits, 0);
  EXPECT_EQ(heap_->stats().fence_waits, 2U);
  EXPECT_EQ(heap_->stats().cached, 0_B);
}

TEST_F(MoveTest, MovedMemoryThatACopyFillsFirstLeavesTheWaitsToThatCopy) {
  make_holes({{2_MiB, true}, {2_MiB, true}});
  {
    const DeferredWaits waits;
    allocate_within_reserved(4_MiB);
    EXPECT_FALSE(waits.fences().empty());
  }
  EXPECT_EQ(counts_.host_waits, 0);
  EXPECT_EQ(counts_.stream_waits, 0);
  EXPECT_EQ(heap_->view().check(), "");
}

TEST_F(MoveTest, WhatThatCopyDoesNotNeedKeepsTheFences) {
  make_holes({{4_MiB, true}, {4_MiB, true}});
  {
    const DeferredWaits waits;
    allocate_within_reserved(7_MiB);
  }
  EXPECT_EQ(heap_->stats().pending, 1_MiB);
  EXPECT_EQ(heap_->stats().fence_waits, 0U);
  allocate(1_MiB);
  EXPECT_GT(heap_->stats().fence_waits, 0U);
}

TEST_F(MoveTest, OfBlocksThatCopiesReadTheOneWhoseCopyEndsFirstIsHandedOut) {
  driver::Timeline& copies = timeline(stuck_table_);
  const auto later = allocate(6_MiB);
  allocate(2_MiB);
  const auto first = allocate(8_MiB);
  allocate(2_MiB);
  for (const driver::DevicePtr at : {first, later}) {
    heap_->add_fence(at, copies.mark().value());
    free(at);
  }

  EXPECT_EQ(allocate_within_reserved(6_MiB), first);
}

TEST_F(MoveTest, NothingIsMappedWhereAMappingWouldHaveToBeWaitedFor) {
  const auto holes = make_holes({{2_MiB}, {2_MiB}});
  allocate_within_reserved(4_MiB);
  heap_->placement().set_target(64_MiB);

  const auto block = allocate(2_MiB);

  EXPECT_NE(block, holes.at(0));
  EXPECT_NE(block, holes.at(1));
  EXPECT_EQ(counts_.host_waits, 0);
}

TEST_F(MoveTest, AMappingThatTheDriverDoesNotEndKeepsItsMemory) {
  make_holes({{2_MiB}, {2_MiB}});
  const auto block = allocate_within_reserved(4_MiB);
  free(block);
  refuses_ = true;
  heap_->trim_sync();
  EXPECT_EQ(heap_->view().check(), "");
  refuses_ = false;

  heap_->placement().set_target({});
  heap_->trim_sync();

  EXPECT_EQ(heap_->stats().reserved, 4_MiB);  // what is allocated
  EXPECT_EQ(heap_->stats().cached, 0_B);
}

TEST_F(MoveTest, ReleasedMemoryHasNoFormerMappings) {
  const auto before = spillway_emulator_used(0);
  make_holes({{2_MiB}, {2_MiB}});
  free(allocate_within_reserved(4_MiB));

  heap_->trim_sync();

  EXPECT_EQ(heap_->stats().reserved, 4_MiB);
  EXPECT_EQ(spillway_emulator_used(0) - before, (4_MiB).count());
  EXPECT_GE(counts_.unmaps, 2);
}

}  // namespace
}  // namespace spillway
