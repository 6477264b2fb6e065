// SPDX-License-Identifier: Apache-2.0
#include "emulator/emulator.h"
#include "tests/heap/heap_fixture.h"

#include <atomic>

namespace spillway {
namespace {

/// The emulated device has 256 MiB (see CMakeLists.txt).
class HeapMemoryTest : public HeapTest {};

TEST_F(HeapMemoryTest, AnOutOfMemoryErrorReportsMemoryByOwner) {
  HeapOptions options;
  options.name_of = [](TagId tag) {
    return tag == TagId{9} ? std::string("encoder") : "";
  };
  make_heap(options);
  static_cast<void>(allocate(100_MiB, main_, TagId{9}));
  static_cast<void>(allocate(50_MiB, main_, TagId{2}));

  const auto refused = heap_->allocate(200_MiB, main_, TagId::kUntagged);

  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.status().code(), Code::kOutOfDeviceMemory);
  const std::string& detail = refused.status().detail();
  EXPECT_NE(detail.find("cannot allocate 200.00 MiB: "), std::string::npos) << detail;
  EXPECT_NE(detail.find("reserved 150.00 MiB"), std::string::npos) << detail;
  EXPECT_NE(detail.find("encoder 100.00 MiB, tag 2 50.00 MiB"), std::string::npos) << detail;
  EXPECT_NE(detail.find("cuMemCreate: CUDA_ERROR_OUT_OF_MEMORY"), std::string::npos) << detail;
}

TEST_F(HeapMemoryTest, AfterOutOfMemoryTheHeapIsAsItWasAndServesWhatFits) {
  const auto large = allocate(150_MiB);
  ASSERT_FALSE(heap_->allocate(200_MiB, main_, TagId::kUntagged).ok());

  EXPECT_EQ(heap_->stats().reserved, 150_MiB);
  EXPECT_EQ(heap_->stats().allocated, 150_MiB);
  EXPECT_EQ(heap_->stats().out_of_memory, 1U);
  free(large);
  EXPECT_NE(allocate(200_MiB), driver::DevicePtr{});
}

TEST_F(HeapMemoryTest, CachedMemoryOfOtherStreamsIsReleasedBeforeOutOfMemory) {
  const auto cached = allocate(150_MiB, side_);
  heap_->add_fence(cached, passed_fence());
  free(cached);

  EXPECT_NE(allocate(200_MiB, main_), driver::DevicePtr{});
  EXPECT_EQ(heap_->stats().reserved, 200_MiB);
  EXPECT_EQ(heap_->stats().out_of_memory, 0U);
}

TEST_F(HeapMemoryTest, ASizeNearTwoToThe64IsOutOfMemory) {
  const auto refused = heap_->allocate(Bytes{~0ULL}, main_, TagId::kUntagged);

  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.status().code(), Code::kOutOfDeviceMemory);
}

TEST_F(HeapMemoryTest, TheLimitCapsReservedMemory) {
  heap_->limits().set_limit(10_MiB);
  const auto first = allocate(8_MiB);

  const auto refused = heap_->allocate(4_MiB, main_, TagId::kUntagged);

  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.status().code(), Code::kOutOfDeviceMemory);
  EXPECT_NE(refused.status().detail().find("limit 10.00 MiB"), std::string::npos);
  free(first);
  EXPECT_NE(allocate(10_MiB), driver::DevicePtr{});
  EXPECT_EQ(heap_->stats().reserved_peak, 10_MiB);
}

TEST_F(HeapMemoryTest, CachedMemoryIsReleasedBeforeTheSoftLimitIsPassed) {
  heap_->limits().set_soft_limit(10_MiB);
  free(allocate(8_MiB, side_));
  static_cast<void>(allocate(4_MiB, main_));

  EXPECT_EQ(heap_->stats().reserved, 4_MiB);
  static_cast<void>(allocate(16_MiB, main_));
  EXPECT_EQ(heap_->stats().reserved, 20_MiB);
}

TEST_F(HeapMemoryTest, ACachedBlockServesBeyondTheSoftLimitWithoutATrim) {
  const auto block = allocate(8_MiB);
  free_in_use(block);
  heap_->limits().set_soft_limit(1_MiB);

  EXPECT_EQ(allocate(8_MiB), block);
  EXPECT_EQ(heap_->stats().driver_releases, 0U);
}

TEST_F(HeapMemoryTest, RemovingTheLimitLetsTheHeapGrow) {
  heap_->limits().set_limit(10_MiB);
  heap_->limits().set_limit(0_B);

  EXPECT_NE(allocate(20_MiB), driver::DevicePtr{});
  EXPECT_EQ(heap_->limits().limit(), 0_B);
}

TEST_F(HeapMemoryTest, TrimReleasesAllFreeMemory) {
  const auto used = spillway_emulator_used(0);
  const auto first = allocate(4_MiB);
  const auto second = allocate(100_B, side_);
  free_in_use(first);
  free(second);

  EXPECT_EQ(spillway_emulator_used(0), used + (6_MiB).count());
  EXPECT_EQ(heap_->trim_sync(), 6_MiB);
  EXPECT_EQ(spillway_emulator_used(0), used);
  EXPECT_EQ(heap_->stats().reserved, 0_B);
  EXPECT_EQ(heap_->stats().driver_releases, 3U);
}

TEST_F(HeapMemoryTest, TrimWaitsForTheStreamBeforeItUnmaps) {
  free(allocate(4_MiB));
  const auto host_syncs = driver::counters().host_syncs;
  const auto emulator_syncs = spillway_emulator_count("host_syncs");

  EXPECT_EQ(heap_->trim_sync(), 4_MiB);
  EXPECT_EQ(driver::counters().host_syncs, host_syncs + 1);
  EXPECT_EQ(spillway_emulator_count("host_syncs"), emulator_syncs + 1);
}

TEST_F(HeapMemoryTest, TrimKeepsChunksWithAnAllocatedBlock) {
  const auto first = allocate(2_MiB);
  free(first);
  const auto allocated = allocate(1_MiB);

  EXPECT_EQ(allocated, first);
  EXPECT_EQ(heap_->trim_sync(), 0_B);
  EXPECT_EQ(heap_->stats().reserved, 2_MiB);
}

TEST_F(HeapMemoryTest, AGapThatTrimLeftIsMappedAgain) {
  const auto first = allocate(4_MiB);
  const auto middle = allocate(6_MiB);
  const auto last = allocate(4_MiB);
  free(middle);
  EXPECT_EQ(heap_->trim_sync(), 6_MiB);
  EXPECT_EQ(heap_->view().check(), "");

  EXPECT_EQ(heap_->view().segments().size(), 2U);
  EXPECT_EQ(allocate(6_MiB), middle);
  EXPECT_EQ(heap_->view().segments().size(), 1U);
  EXPECT_EQ(heap_->find(first).size + heap_->find(last).size, 8_MiB);
}

TEST_F(HeapMemoryTest, GapsThatTouchAreFilledAsOne) {
  const auto first = allocate(4_MiB);
  const auto second = allocate(4_MiB);
  const auto third = allocate(4_MiB);
  static_cast<void>(allocate(2_MiB));
  free(second);
  EXPECT_EQ(heap_->trim_sync(), 4_MiB);
  free(first);
  EXPECT_EQ(heap_->trim_sync(), 4_MiB);
  free(third);
  EXPECT_EQ(heap_->trim_sync(), 4_MiB);

  EXPECT_EQ(allocate(12_MiB), first);
}

TEST_F(HeapMemoryTest, FreeMemoryOnBothSidesOfAGapBecomesOneBlockWhenItIsFilled) {
  const auto first = allocate(4_MiB);
  const auto middle = allocate(2_MiB);
  const auto last = allocate(4_MiB);
  static_cast<void>(allocate(2_MiB));
  free(middle);
  EXPECT_EQ(heap_->trim_sync(), 2_MiB);
  free(first);
  free(last);

  EXPECT_EQ(allocate(10_MiB), first);
  EXPECT_EQ(heap_->stats().reserved, 12_MiB);
  EXPECT_EQ(heap_->stats().driver_releases, 1U);
}

TEST_F(HeapMemoryTest, AGapGrowsFromItsEndWhereTheFreeMemoryIs) {
  static_cast<void>(allocate(2_MiB));
  const auto middle = allocate(8_MiB);
  const auto last = allocate(4_MiB);
  static_cast<void>(allocate(2_MiB));
  free(middle);
  EXPECT_EQ(heap_->trim_sync(), 8_MiB);
  free(last);

  EXPECT_EQ(allocate(6_MiB), middle + 6_MiB);
  EXPECT_EQ(heap_->stats().reserved, 10_MiB);
}

TEST_F(HeapMemoryTest, FreeMemoryThatTheNewBlockBordersBecomesPartOfIt) {
  static_cast<void>(allocate(4_MiB));
  free(allocate(4_MiB));

  EXPECT_NE(allocate(8_MiB), driver::DevicePtr{});
  EXPECT_EQ(heap_->stats().driver_releases, 0U);
  EXPECT_EQ(heap_->stats().reserved, 12_MiB);
}

TEST_F(HeapMemoryTest, ARepeatingStepReachesASteadyState) {
  const auto step = [&] {
    const std::vector<Bytes> sizes = {4_MiB, 2_MiB, 6_MiB, 2_MiB, 8_MiB, 2_MiB};
    std::vector<driver::DevicePtr> blocks;
    for (const Bytes size : sizes)
      blocks.push_back(allocate(size));
    free(blocks[0]);
    free(blocks[2]);
    free(blocks[4]);
    free(allocate(14_MiB));
    free(allocate(16_MiB));
    free(blocks[5]);
    free(blocks[1]);
    free(blocks[3]);
  };
  for (int i = 0; i < 30; ++i)
    step();
  const driver::Counters before = driver::counters();
  for (int i = 0; i < 30; ++i)
    step();

  EXPECT_EQ(driver::counters().allocations, before.allocations);
  EXPECT_EQ(driver::counters().host_syncs, before.host_syncs);
}

TEST_F(HeapMemoryTest, ALargerDeviceIsMappedInLargerChunks) {
  table_.MemGetInfo = [](std::size_t* free_bytes, std::size_t* total) {
    *free_bytes = *total = (64_GiB).count();
    return CUDA_SUCCESS;
  };
  make_heap({});

  EXPECT_NE(allocate(10_MiB), driver::DevicePtr{});
  EXPECT_EQ(heap_->stats().driver_allocations, 3U);
  EXPECT_EQ(heap_->stats().reserved, 10_MiB);
}

TEST_F(HeapMemoryTest, PeaksRecordTheOffloadedBytesAtThatTime) {
  std::atomic<std::uint64_t> offloaded = 111;
  HeapOptions options;
  options.offloaded = &offloaded;
  make_heap(options);
  const auto block = allocate(8_MiB);
  offloaded = 222;
  free(block);
  static_cast<void>(allocate(6_MiB));

  const HeapStats stats = heap_->stats();
  EXPECT_EQ(stats.allocated_peak, 8_MiB);
  EXPECT_EQ(stats.requested_peak, 8_MiB);
  EXPECT_EQ(stats.reserved_peak, 8_MiB);
  EXPECT_EQ(stats.offloaded_at_allocated_peak, 111_B);
  EXPECT_EQ(stats.offloaded_at_reserved_peak, 111_B);
}

TEST_F(HeapMemoryTest, ResetPeaksBeginAtThePresentBytes) {
  std::atomic<std::uint64_t> offloaded = 0;
  HeapOptions options;
  options.offloaded = &offloaded;
  make_heap(options);
  free(allocate(8_MiB));
  static_cast<void>(allocate(2_MiB));
  offloaded = 333;

  heap_->view().reset_peaks();

  EXPECT_EQ(heap_->stats().allocated_peak, 2_MiB);
  EXPECT_EQ(heap_->stats().reserved_peak, 8_MiB);
  EXPECT_EQ(heap_->stats().offloaded_at_allocated_peak, 333_B);
}

}  // namespace
}  // namespace spillway
