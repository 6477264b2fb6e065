// SPDX-License-Identifier: Apache-2.0
// What a heap releases to stay within its target.
#include "emulator/emulator.h"
#include "tests/heap/heap_fixture.h"

#include <algorithm>
#include <vector>

namespace spillway {
namespace {

/// Counts how often the host waits, and the most memory that exists when some is mapped. No query
/// sees an event to have passed until `passed_` is set.
class TrimTest : public HeapTest {
 protected:
  void SetUp() override {
    HeapTest::SetUp();
    waits_ = 0;
    most_used_ = 0;
    passed_ = false;
    table_.EventQuery = [](CUevent) {
      return passed_ ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
    };
    table_.EventSynchronize = [](CUevent event) {
      ++waits_;
      return driver::api().value()->EventSynchronize(event);
    };
    table_.MemMap = [](CUdeviceptr at,
                       std::size_t bytes,
                       std::size_t offset,
                       CUmemGenericAllocationHandle handle,
                       unsigned long long flags) {
      most_used_ = std::max(most_used_, spillway_emulator_used(0));
      return driver::api().value()->MemMap(at, bytes, offset, handle, flags);
    };
  }

  /// Makes free pieces of 2 MiB, between allocated ones.
  void make_holes(int count) {
    std::vector<driver::DevicePtr> freed;
    for (int i = 0; i < count; ++i) {
      freed.push_back(allocate(2_MiB));
      allocate(2_MiB);
    }
    for (const driver::DevicePtr at : freed)
      free(at);
  }

  /// Growth within this target.
  driver::DevicePtr allocate_within(Bytes target, Bytes size) {
    heap_->placement().set_target(target);
    return allocate(size);
  }

  /// The same for another stream, to which memory moves only when the device is done with it.
  driver::DevicePtr allocate_beside_within(Bytes target, Bytes size) {
    heap_->placement().set_target(target);
    return allocate(size, side_);
  }

  static inline bool passed_ = false;
  static inline int waits_ = 0;
  static inline std::uint64_t most_used_ = 0;
};

TEST_F(TrimTest, NoMoreIsReleasedThanIsNeeded) {
  make_holes(8);

  allocate_within(32_MiB, 4_MiB);

  EXPECT_EQ(heap_->stats().reserved, 32_MiB);
  EXPECT_EQ(heap_->stats().cached, 12_MiB);
}

TEST_F(TrimTest, WhatWasFreedTheLongestAgoGoesFirstAndTheHostWaitsForNothingLater) {
  const auto first = allocate(4_MiB);
  allocate(2_MiB);
  const auto second = allocate(4_MiB);
  allocate(2_MiB);
  free(first);
  free(second);
  allocate_beside_within(14_MiB, 6_MiB);  // in the memory of one of them
  EXPECT_EQ(waits_, 1);

  allocate_beside_within(16_MiB, 4_MiB);  // in some of the other one's: that was waited for

  EXPECT_EQ(waits_, 1);
  EXPECT_EQ(heap_->stats().cached, 2_MiB);
}

TEST_F(TrimTest, MemoryMovesWithoutBeingReleasedAndWithoutExceedingTheBudget) {
  heap_->limits().hold_budget(16_MiB);
  const auto before = spillway_emulator_used(0);
  make_holes(4);
  const HeapStats had = heap_->stats();
  most_used_ = 0;

  allocate_within(16_MiB, 6_MiB);

  EXPECT_EQ(heap_->stats().reserved, 16_MiB);
  EXPECT_EQ(heap_->stats().driver_releases, had.driver_releases);
  EXPECT_EQ(heap_->stats().driver_allocations, had.driver_allocations);
  EXPECT_LE(most_used_ - before, (16_MiB).count());
  EXPECT_EQ(spillway_emulator_used(0) - before, (16_MiB).count());
}

TEST_F(TrimTest, WhatIsMergedWasFreedWhenItsLastPartWas) {
  for (const std::vector<int>& order : {std::vector{1}, {0, 1}, {1, 0}, {0, 2, 1}}) {
    make_heap({});
    std::vector<driver::DevicePtr> parts;
    for (int i = 0; i < 3; ++i)
      parts.push_back(allocate(2_MiB));
    allocate(2_MiB);  // keeps them apart
    const auto other = allocate(2_MiB);
    allocate(2_MiB);
    for (std::size_t i = 0; i + 1 < order.size(); ++i)
      free(parts[static_cast<std::size_t>(order[i])]);
    free(other);
    // Releases the memory of `other`, which was freed last of equally large blocks.
    allocate_beside_within(heap_->stats().reserved + 2_MiB, 4_MiB);
    free(parts[static_cast<std::size_t>(order.back())]);
    waits_ = 0;

    const Bytes hole = heap_->stats().cached;
    allocate_beside_within(heap_->stats().reserved + 2_MiB, hole + 2_MiB);

    EXPECT_EQ(hole, Bytes{order.size() * (2_MiB).count()});
    EXPECT_EQ(heap_->stats().cached, 0_B);
    EXPECT_EQ(waits_, 1);
  }
}

TEST_F(TrimTest, WhatIsMergedOnceItsFenceHasPassedWasFreedWhenItsLastPartWas) {
  const auto first = allocate(2_MiB);
  const auto second = allocate(2_MiB);
  allocate(2_MiB);  // keeps them apart
  const auto other = allocate(2_MiB);
  allocate(2_MiB);
  heap_->add_fence(first, passed_fence());
  free(first);
  free(other);
  allocate_beside_within(heap_->stats().reserved + 2_MiB, 4_MiB);
  ASSERT_EQ(heap_->stats().cached, 2_MiB);
  free(second);
  waits_ = 0;
  passed_ = true;

  allocate_beside_within(heap_->stats().reserved + 2_MiB, 6_MiB);

  EXPECT_EQ(heap_->stats().cached, 0_B);
  EXPECT_EQ(waits_, 1);
}

TEST_F(TrimTest, ChunksOfAnotherSizeAreReleasedBeforeNewOnesAreMade) {
  table_.MemGetInfo = [](std::size_t* left, std::size_t* total) {
    *left = *total = std::size_t{64} << 30;  // chunks are a share of it
    return CUDA_SUCCESS;
  };
  make_heap({});
  const auto before = spillway_emulator_used(0);
  const auto large = allocate(40_MiB);
  ASSERT_LT(heap_->stats().driver_allocations, 20U);
  allocate(2_MiB);
  heap_->limits().hold_budget(44_MiB);
  free(large);
  most_used_ = 0;

  allocate_within(44_MiB, 42_MiB);

  EXPECT_LE(most_used_ - before, (44_MiB).count());
  EXPECT_EQ(spillway_emulator_used(0) - before, heap_->stats().reserved.count());
}

TEST_F(TrimTest, WhatIsNotMappedAgainIsReleased) {
  const auto before = spillway_emulator_used(0);
  const auto large = allocate(12_MiB);
  allocate(2_MiB);
  free(large);
  heap_->limits().hold_budget(14_MiB);

  EXPECT_FALSE(heap_->allocate(14_MiB, main_, TagId::kUntagged).ok());

  EXPECT_EQ(heap_->stats().reserved, 2_MiB);
  EXPECT_EQ(heap_->stats().driver_releases, heap_->stats().driver_allocations - 1);
  EXPECT_EQ(spillway_emulator_used(0) - before, (2_MiB).count());
}

TEST_F(TrimTest, MemoryThatOtherProcessesMayMapIsReleased) {
  const auto shared = allocate(2_MiB);
  allocate(2_MiB);
  ASSERT_TRUE(heap_->share(shared).ok());
  free(shared);
  const HeapStats had = heap_->stats();

  allocate_within(6_MiB, 4_MiB);

  EXPECT_EQ(heap_->stats().driver_releases, had.driver_releases + 1);
  EXPECT_EQ(heap_->stats().driver_allocations, had.driver_allocations + 2);
}

}  // namespace
}  // namespace spillway
