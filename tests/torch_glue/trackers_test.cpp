// SPDX-License-Identifier: Apache-2.0
#include "allocator/runtime/runtime.h"
#include "torch_glue/cuda_allocator/cuda_allocator.h"

#include <c10/cuda/CUDAFunctions.h>

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

namespace spillway {
namespace {

/// Trackers stay for the life of the process: this one records everything, and each case checks
/// what is new.
class TrackersTest : public testing::Test {
 protected:
  // Not once for the suite: what fails there is reported as skipped.
  void SetUp() override {
    ASSERT_TRUE(use_allocator().ok());
    static const bool attached = attach();
    ASSERT_TRUE(attached);
    heard().clear();
  }

  static bool attach() {
    allocator().init(c10::cuda::device_count());
    allocator().attachAllocatorTraceTracker([](const TraceEntry& entry) {
      heard().push_back(entry);
      if (entry.action_ != TraceEntry::ALLOC || entry.size_ != kNested) return;
      // A tracker may do what takes the allocator's locks.
      size_t size = 0;
      allocator().getBaseAllocation(reinterpret_cast<void*>(entry.addr_), &size);  // NOLINT
      base_size() = size;
    });
    return true;
  }

  static SpillwayAllocator& allocator() { return SpillwayAllocator::instance(); }

  static std::vector<TraceEntry>& heard() {
    static std::vector<TraceEntry> entries;
    return entries;
  }

  static size_t& base_size() {
    static size_t size = 0;
    return size;
  }

  static long count(TraceEntry::Action action) {
    return std::count_if(heard().begin(), heard().end(), [&](const TraceEntry& entry) {
      return entry.action_ == action;
    });
  }

  static constexpr size_t kNested = 12345;
};

TEST_F(TrackersTest, ATrackerIsNotifiedOfBlocksAndMappingsWithoutAnyHistory) {
  EXPECT_FALSE(allocator().isHistoryEnabled());
  void* const block = allocator().raw_alloc(40 << 20);
  allocator().raw_delete(block);
  allocator().emptyCache({0, 0});

  EXPECT_EQ(count(TraceEntry::ALLOC), 1);
  EXPECT_EQ(count(TraceEntry::FREE_REQUESTED), 1);
  EXPECT_EQ(count(TraceEntry::FREE_COMPLETED), 1);
  EXPECT_GE(count(TraceEntry::SEGMENT_MAP), 1);
  EXPECT_GE(count(TraceEntry::SEGMENT_UNMAP), 1);
  EXPECT_TRUE(allocator().snapshot({0, 0}, true).device_traces.at(0).empty());
}

TEST_F(TrackersTest, AnAllocationThatMapsNothingVisitsNoOtherBlock) {
  void* const first = allocator().raw_alloc(40 << 20);  // the heap maps memory
  allocator().raw_delete(first);
  const auto runtime = Runtime::instance().device(DeviceId{0});
  ASSERT_TRUE(runtime.ok());
  const std::uint64_t walks = runtime.value()->heap().view().walks();
  for (int times = 0; times < 10; ++times)
    allocator().raw_delete(allocator().raw_alloc(40 << 20));

  EXPECT_EQ(count(TraceEntry::ALLOC), 11);
  EXPECT_EQ(runtime.value()->heap().view().walks(), walks);
}

TEST_F(TrackersTest, ATrackerMayAskTheAllocator) {
  void* const block = allocator().raw_alloc(kNested);
  allocator().raw_delete(block);

  EXPECT_GE(base_size(), kNested);
}

TEST_F(TrackersTest, ATrackerIsNotifiedOfOutOfMemory) {
  EXPECT_THROW(allocator().raw_alloc(size_t{1} << 45), c10::OutOfMemoryError);

  ASSERT_EQ(count(TraceEntry::OOM), 1);
  EXPECT_EQ(heard().back().size_, size_t{1} << 45);
  EXPECT_EQ(heard().back().addr_, allocator().getMemoryInfo(0).first);
}

TEST_F(TrackersTest, RecordingStacksWithoutARecorderIsRefused) {
  EXPECT_THROW(allocator().recordHistory(true, nullptr, 10, RecordContext::ALL, false, {}),
               c10::ValueError);
  EXPECT_FALSE(allocator().isHistoryEnabled());
}

}  // namespace
}  // namespace spillway
