// SPDX-License-Identifier: Apache-2.0
#include "tests/residency/residency_fixture.h"

#include <array>

namespace spillway {
namespace {

class ResidencyTest : public ResidencyFixture {
 protected:
  void TearDown() override {
    ResidencyFixture::TearDown();
    EXPECT_EQ(spillway_emulator_count("unordered"), reports_);
  }

 private:
  const std::uint64_t reports_ = spillway_emulator_count("unordered");
};

TEST_F(ResidencyTest, AFreedStorageIsFetchedBitForBit) {
  const driver::DevicePtr source = allocate(kSize, main_);
  fill(source, 7, main_);
  Stash saved = stash(source, main_);
  free(source);
  fill(allocate(kSize, main_), 8, main_);
  const driver::DevicePtr destination = allocate(kSize, main_);

  ASSERT_TRUE(driver::Timeline::wait(main_, fetch(saved, destination, main_)).ok());

  EXPECT_EQ(read(destination, main_), 7);
}

TEST_F(ResidencyTest, TheHostCopyCanBeFetchedTwice) {
  const driver::DevicePtr source = allocate(kSize, main_);
  fill(source, 7, main_);
  Stash saved = stash(source, main_);
  free(source);
  fetch(saved, allocate(kSize, main_), main_);
  const driver::DevicePtr second = allocate(kSize, main_);

  ASSERT_TRUE(driver::Timeline::wait(main_, fetch(saved, second, main_)).ok());

  EXPECT_EQ(read(second, main_), 7);
}

TEST_F(ResidencyTest, PartsOfAStorageAreFetchedTogether) {
  const driver::DevicePtr source = allocate(kSize, main_);
  fill(source, 7, main_);
  const std::array<Leaving, 2> parts{{{source, 1000_B}, {source + 5000_B, kSize - 5000_B}}};
  std::vector<Stash> saved = residency_->stash(parts, main_).value();
  EXPECT_EQ(residency_->stats().stashed, kSize - 4000_B);
  free(source);
  const driver::DevicePtr destination = allocate(kSize, main_);
  fill(destination, 7, main_);
  ASSERT_EQ(set_bytes_(destination.address(), 8, 1000, main_.handle()), CUDA_SUCCESS);
  ASSERT_EQ(set_bytes_((destination + 5000_B).address(), 8, 100000, main_.handle()), CUDA_SUCCESS);

  const std::array<Return, 2> returns{
      {{&saved[0], destination}, {&saved[1], destination + 5000_B}}};
  const driver::Fence fence = residency_->fetch(returns, main_, CopyPriority::kPrefetch).value();
  ASSERT_TRUE(driver::Timeline::wait(main_, fence).ok());

  EXPECT_EQ(read(destination, main_), 7);
  EXPECT_EQ(residency_->stats().fetched, kSize - 4000_B);
  EXPECT_EQ(residency_->stats().fetches, 1U);
  EXPECT_EQ(offloaded_.load(), 0U);
  saved.clear();
}

TEST_F(ResidencyTest, WhereOnePartFindsNoHostMemoryNoneIsStashed) {
  arena_ = std::make_unique<HostArena>(device_, 4_MiB);
  make_residency();
  const driver::DevicePtr source = allocate(kSize, main_);
  const std::array<Leaving, 2> parts{{{source, 1000_B}, {source, 1_GiB}}};

  EXPECT_EQ(residency_->stash(parts, main_).status().code(), Code::kOutOfHostMemory);

  EXPECT_EQ(residency_->stats().stashed, 0_B);
  EXPECT_EQ(arena_->stats().in_slots, 0_B);
}

TEST_F(ResidencyTest, AFreedSourceCarriesTheFenceOfItsCopy) {
  table_.EventQuery = stuck_table_.EventQuery;
  const driver::DevicePtr source = allocate(kSize, main_);
  Stash saved = stash(source, main_);

  free(source);

  EXPECT_GE(heap_->stats().pending, kSize);
}

TEST_F(ResidencyTest, AFreedDestinationCarriesTheFenceOfItsCopy) {
  table_.EventQuery = stuck_table_.EventQuery;
  const driver::DevicePtr source = allocate(kSize, main_);
  Stash saved = stash(source, main_);
  const driver::DevicePtr destination = allocate(kSize, main_);
  fetch(saved, destination, main_);

  free(destination);

  EXPECT_GE(heap_->stats().pending, kSize);
}

TEST_F(ResidencyTest, BytesAreOffloadedFromTheStashToTheFetch) {
  Stash saved = stash(allocate(kSize, main_), main_);
  EXPECT_EQ(offloaded_.load(), kSize.count());

  fetch(saved, allocate(kSize, main_), main_);

  EXPECT_EQ(offloaded_.load(), 0U);
}

TEST_F(ResidencyTest, AReleasedFetchedCopyIsOffloadedAgain) {
  Stash saved = stash(allocate(kSize, main_), main_);
  fetch(saved, allocate(kSize, main_), main_);

  saved.set_offloaded(true);
  saved.set_offloaded(true);

  EXPECT_EQ(residency_->stats().offloaded, kSize);
}

TEST_F(ResidencyTest, ADroppedStashLeavesTheAccountingAtOnce) {
  Stash saved = stash(allocate(kSize, main_), main_);
  EXPECT_EQ(residency_->stats().on_host, kSize);

  saved = {};

  const ResidencyStats stats = residency_->stats();
  EXPECT_EQ(stats.on_host, 0_B);
  EXPECT_EQ(stats.offloaded, 0_B);
  EXPECT_EQ(stats.dropped, 1U);
}

TEST_F(ResidencyTest, AStashThatIsMovedEndsOnceAndOneThatIsReplacedEnds) {
  Stash first = stash(allocate(kSize, main_), main_);
  Stash moved = std::move(first);
  EXPECT_EQ(residency_->stats().on_host, kSize);

  moved = stash(allocate(kSize, main_), main_);

  EXPECT_EQ(residency_->stats().on_host, kSize);
  EXPECT_EQ(residency_->stats().dropped, 1U);
  synchronize();
  EXPECT_EQ(arena_->stats().in_slots, kSize.rounded_up(64_B));
}

TEST_F(ResidencyTest, WhereOneOfSeveralPartsHasNoHostMemoryNoneIsTaken) {
  arena_ = std::make_unique<HostArena>(device_, 2_MiB);
  make_residency();
  const driver::DevicePtr source = allocate(3_MiB, main_);
  const std::vector<Leaving> parts = {{source, 1_MiB}, {source + 1_MiB, 2_MiB}};

  EXPECT_EQ(residency_->stash(parts, main_).status().code(), Code::kOutOfHostMemory);

  EXPECT_EQ(arena_->stats().in_slots, 0_B);
  EXPECT_EQ(residency_->stats().stashes, 0U);
}

TEST_F(ResidencyTest, ASlotThatWasNeverFetchedGoesBackWithTheCopyOut) {
  table_.EventQuery = stuck_table_.EventQuery;
  Stash saved = stash(allocate(kSize, main_), main_);
  const driver::Fence written = saved.written();
  saved = {};

  HostSlot slot = arena_->take(kSize).value();

  EXPECT_EQ(slot.fences, (driver::FenceSet{written}));
}

TEST_F(ResidencyTest, ASlotThatWasFetchedGoesBackWithTheLastCopyIn) {
  table_.EventQuery = stuck_table_.EventQuery;
  Stash saved = stash(allocate(kSize, main_), main_);
  fetch(saved, allocate(kSize, main_), main_);
  const driver::Fence last = fetch(saved, allocate(kSize, main_), main_);
  saved = {};

  HostSlot slot = arena_->take(kSize).value();

  EXPECT_EQ(slot.fences, (driver::FenceSet{last}));
}

TEST_F(ResidencyTest, ASlotThatBothQueuesReadGoesBackWithTheLastCopyOfEach) {
  table_.EventQuery = stuck_table_.EventQuery;
  Stash saved = stash(allocate(kSize, main_), main_);
  fetch(saved, allocate(kSize, main_), main_);
  const driver::Fence ahead = fetch(saved, allocate(kSize, main_), main_);
  const driver::Fence waited_for =
      residency_->fetch(saved, allocate(kSize, main_), main_, CopyPriority::kDemand).value();
  saved = {};

  HostSlot slot = arena_->take(kSize).value();

  EXPECT_EQ(slot.fences, (driver::FenceSet{ahead, waited_for}));
}

TEST_F(ResidencyTest, WithoutHostMemoryAStashIsATypedErrorAndTheAccountingIsUnchanged) {
  arena_ = std::make_unique<HostArena>(device_, kSize - 1_B);
  make_residency();

  const auto refused = residency_->stash(allocate(kSize, main_), kSize, main_);

  EXPECT_EQ(refused.status().code(), Code::kOutOfHostMemory);
  EXPECT_EQ(residency_->stats().on_host, 0_B);
  EXPECT_EQ(residency_->stats().stashes, 0U);
  EXPECT_EQ(offloaded_.load(), 0U);
}

TEST_F(ResidencyTest, ACopyOutThatFailsGivesItsSlotBackWithTheFencesItCameWith) {
  table_.EventQuery = stuck_table_.EventQuery;
  const driver::DevicePtr source = allocate(kSize, main_);
  Stash saved = stash(source, main_);
  const driver::Fence written = saved.written();
  saved = {};
  const Fault<&driver::Api::MemcpyDtoHAsync> fault(table_, 1, CUDA_ERROR_INVALID_VALUE);

  EXPECT_EQ(residency_->stash(source, kSize, main_).status().code(), Code::kDriver);

  HostSlot slot = arena_->take(kSize).value();
  EXPECT_EQ(slot.fences, (driver::FenceSet{written}));
  EXPECT_EQ(residency_->stats().on_host, 0_B);
}

TEST_F(ResidencyTest, ACopyInThatFailsLeavesTheStashAsItWas) {
  Stash saved = stash(allocate(kSize, main_), main_);
  const driver::DevicePtr destination = allocate(kSize, main_);
  const Fault<&driver::Api::MemcpyHtoDAsync> fault(table_, 1, CUDA_ERROR_INVALID_VALUE);

  EXPECT_EQ(residency_->fetch(saved, destination, main_).status().code(), Code::kDriver);

  EXPECT_EQ(offloaded_.load(), kSize.count());
  EXPECT_EQ(residency_->stats().fetches, 0U);
  saved = {};
  EXPECT_EQ(residency_->stats().dropped, 1U) << "it was never fetched";
}

TEST_F(ResidencyTest, ThePeakOfTheHeapRecordsTheOffloadedBytes) {
  Stash saved = stash(allocate(kSize, main_), main_);
  heap_->view().reset_peaks();

  allocate(8_MiB, main_);

  EXPECT_EQ(heap_->stats().offloaded_at_allocated_peak, kSize);
}

}  // namespace
}  // namespace spillway
