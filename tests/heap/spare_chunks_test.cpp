// SPDX-License-Identifier: Apache-2.0
#include "allocator/heap/spare_chunks.h"

#include "allocator/heap/accounting.h"
#include "emulator/emulator.h"
#include "tests/heap/heap_fixture.h"

#include <optional>

namespace spillway {
namespace {

/// A chunk of 2 MiB that no block uses any more.
class SpareChunksTest : public HeapTest {
 protected:
  void SetUp() override {
    HeapTest::SetUp();
    spares_.emplace(device_, accounting_);
    const CUmemAllocationProp memory{CU_MEM_ALLOCATION_TYPE_PINNED,
                                     CU_MEM_HANDLE_TYPE_NONE,
                                     {CU_MEM_LOCATION_TYPE_DEVICE, {0}},
                                     nullptr,
                                     {}};
    ASSERT_EQ(table_.MemCreate(&chunk_.handle, chunk_.size.count(), &memory, 0), CUDA_SUCCESS);
    accounting_.created();
    accounting_.mapped(chunk_.size);
    used_ = spillway_emulator_used(0);
  }

  void TearDown() override {
    spares_.reset();
    HeapTest::TearDown();
  }

  /// In a scope, the chunk leaves its block.
  void leave() {
    const SpareChunks::Scope scope(*spares_);
    accounting_.unmapped(chunk_.size, 0);
    spares_->add(chunk_);
  }

  /// Maps the chunk at an address that the device uses until a query sees it.
  void map_formerly() {
    CUdeviceptr at = 0;
    ASSERT_EQ(table_.MemAddressReserve(&at, chunk_.size.count(), 0, 0, 0), CUDA_SUCCESS);
    ASSERT_EQ(table_.MemMap(at, chunk_.size.count(), 0, chunk_.handle, 0), CUDA_SUCCESS);
    spares_->formers().add(driver::DevicePtr(at), {chunk_.size, chunk_.handle, {stuck_fence()}});
  }

  [[nodiscard]] Bytes reserved() const {
    HeapStats stats;
    accounting_.read(stats);
    return stats.reserved;
  }

  [[nodiscard]] bool exists() const { return spillway_emulator_used(0) == used_; }

  Accounting accounting_{HeapOptions{}};
  std::optional<SpareChunks> spares_;
  Chunk chunk_{2_MiB, 0};
  std::uint64_t used_ = 0;
};

TEST_F(SpareChunksTest, WithinATargetAChunkStaysReservedForTheNextScope) {
  accounting_.set_target(2_MiB);
  leave();
  EXPECT_TRUE(exists());
  EXPECT_EQ(reserved(), 2_MiB);
  EXPECT_EQ(spares_->bytes(), 2_MiB);

  const SpareChunks::Scope scope(*spares_);
  EXPECT_EQ(reserved(), 0_B);
  const auto taken = spares_->take(2_MiB, 2_MiB, std::nullopt);
  ASSERT_TRUE(taken);
  EXPECT_EQ(taken->handle, chunk_.handle);
  table_.MemRelease(taken->handle);
}

TEST_F(SpareChunksTest, OneThatStaysCountsInTheTargetsPeak) {
  accounting_.set_target(2_MiB);
  {
    const SpareChunks::Scope scope(*spares_);
    accounting_.unmapped(chunk_.size, 0);
    spares_->add(chunk_);
    accounting_.begin_target_peak();
  }
  EXPECT_EQ(accounting_.target_peak(), 2_MiB);
}

TEST_F(SpareChunksTest, OneThatOtherProcessesMayMapIsNotTaken) {
  accounting_.set_target(16_MiB);
  map_formerly();
  table_.MemUnmap = [](CUdeviceptr, std::size_t) {
    return CUDA_ERROR_UNKNOWN;
  };
  chunk_.exported = true;
  leave();
  EXPECT_TRUE(exists());

  const SpareChunks::Scope scope(*spares_);
  EXPECT_FALSE(spares_->take(2_MiB, 2_MiB, std::nullopt));
  table_.MemUnmap = driver::api().value()->MemUnmap;
}

TEST_F(SpareChunksTest, OneWhoseUseEndsWhileAChunkIsSoughtIsReleased) {
  static int queries = 0;
  queries = 0;
  stuck_table_.EventQuery = [](CUevent) {
    return queries++ == 0 ? CUDA_ERROR_NOT_READY : CUDA_SUCCESS;
  };
  accounting_.set_target(2_MiB);
  map_formerly();
  leave();
  queries = 0;

  EXPECT_EQ(spares_->trim(), 2_MiB);
  EXPECT_FALSE(exists());
}

TEST_F(SpareChunksTest, ASmallOneIsTakenOnlyWhereThereIsNoRoomForALargerOne) {
  accounting_.set_target(16_MiB);
  leave();
  const SpareChunks::Scope scope(*spares_);
  EXPECT_FALSE(spares_->take(6_MiB, 6_MiB, std::nullopt));
  accounting_.set_budget(7_MiB);

  const auto taken = spares_->take(6_MiB, 6_MiB, std::nullopt);
  ASSERT_TRUE(taken);
  table_.MemRelease(taken->handle);
}

TEST_F(SpareChunksTest, OfEqualOnesTheOneIsTakenWhoseUsesComeFirst) {
  accounting_.set_target(64_MiB);
  const SpareChunks::Scope scope(*spares_);
  const driver::Fence first = stuck_fence();
  const driver::Fence second = stuck_fence();
  driver::Timeline own(device_, main_);
  spares_->add({2_MiB, 1, false, {second}});
  spares_->add({2_MiB, 2, false, {own.mark().value()}});
  spares_->add({2_MiB, 3, false, {first}});
  // The user need not wait for its own work.
  for (const CUmemGenericAllocationHandle expected : {2U, 3U, 1U})
    EXPECT_EQ(spares_->take(2_MiB, 2_MiB, main_)->handle, expected);
}

TEST_F(SpareChunksTest, WhereNewMemoryHasNoRoomALargerOneIsCountedWhole) {
  accounting_.set_target(64_MiB);
  const SpareChunks::Scope scope(*spares_);
  for (const CUmemGenericAllocationHandle each : {1U, 2U})
    spares_->add({4_MiB, each});
  EXPECT_EQ(spares_->surplus(6_MiB, 4_MiB, main_), 0_B);
  accounting_.set_budget(8_MiB);
  EXPECT_EQ(spares_->surplus(4_MiB, 4_MiB, main_), 0_B);
  EXPECT_EQ(spares_->surplus(6_MiB, 4_MiB, main_), 2_MiB);
  EXPECT_EQ(spares_->surplus(2_MiB, 4_MiB, main_), 2_MiB);
  EXPECT_EQ(spares_->surplus(10_MiB, 4_MiB, main_), 0_B);  // there is not enough
  for (int each = 0; each < 2; ++each)
    EXPECT_TRUE(spares_->take(4_MiB, 4_MiB, main_));
}

TEST_F(SpareChunksTest, WithoutATargetItIsReleased) {
  leave();
  EXPECT_FALSE(exists());
  EXPECT_EQ(reserved(), 0_B);
}

TEST_F(SpareChunksTest, BeyondTheTargetItIsReleasedUnlessTheDeviceUsesAFormerMapping) {
  accounting_.set_target(1_MiB);
  map_formerly();
  leave();
  EXPECT_TRUE(exists());
  EXPECT_EQ(reserved(), 2_MiB);

  EXPECT_EQ(spares_->trim(), 2_MiB);  // waits
  EXPECT_FALSE(exists());
  EXPECT_EQ(reserved(), 0_B);
}

TEST_F(SpareChunksTest, BeyondTheTargetItIsReleased) {
  accounting_.set_target(1_MiB);
  leave();
  EXPECT_FALSE(exists());
  EXPECT_EQ(reserved(), 0_B);
}

TEST_F(SpareChunksTest, ABudgetWithoutRoomForMoreMemoryReleasesItEvenIfThatWaits) {
  accounting_.set_target(2_MiB);
  accounting_.set_budget(3_MiB);
  map_formerly();
  leave();
  const SpareChunks::Scope scope(*spares_);

  spares_->make_room(1_MiB);
  EXPECT_TRUE(exists());
  spares_->make_room(2_MiB);
  EXPECT_FALSE(exists());
}

}  // namespace
}  // namespace spillway
