// SPDX-License-Identifier: Apache-2.0
#include "emulator/emulator.h"
#include "tests/heap/heap_fixture.h"

#include <utility>

namespace spillway {
namespace {

using driver::Api;

/// One driver call fails; everything before and after it works.
class HeapFaultsTest : public HeapTest {
 protected:
  /// Allocates where growth is needed, which must fail with `code` and change nothing; then again,
  /// which must work.
  void expect_unchanged_by_failure(Code code) {
    const HeapStats before = heap_->stats();
    const auto used = spillway_emulator_used(0);

    const auto refused = heap_->allocate(6_MiB, main_, TagId::kUntagged);

    ASSERT_FALSE(refused.ok());
    EXPECT_EQ(refused.status().code(), code);
    EXPECT_EQ(heap_->view().check(), "");
    EXPECT_EQ(heap_->stats().reserved, before.reserved);
    EXPECT_EQ(heap_->stats().allocated, before.allocated);
    const auto chunks = [](const HeapStats& of) {
      return of.driver_allocations - of.driver_releases;
    };
    EXPECT_EQ(chunks(heap_->stats()), chunks(before));
    EXPECT_EQ(spillway_emulator_used(0), used);
    EXPECT_NE(allocate(6_MiB), driver::DevicePtr{});
  }
};

TEST_F(HeapFaultsTest, AChunkThatCannotBeCreatedChangesNothing) {
  static_cast<void>(allocate(2_MiB));
  const Fault<&Api::MemCreate> fault(table_, 2, CUDA_ERROR_UNKNOWN);
  expect_unchanged_by_failure(Code::kDriver);
}

TEST_F(HeapFaultsTest, AChunkThatCannotBeMappedChangesNothing) {
  static_cast<void>(allocate(2_MiB));
  const Fault<&Api::MemMap> fault(table_, 3, CUDA_ERROR_UNKNOWN);
  expect_unchanged_by_failure(Code::kDriver);
}

TEST_F(HeapFaultsTest, AChunkThatCannotBeMadeAccessibleChangesNothing) {
  static_cast<void>(allocate(2_MiB));
  const Fault<&Api::MemSetAccess> fault(table_, 1, CUDA_ERROR_UNKNOWN);
  expect_unchanged_by_failure(Code::kDriver);
}

TEST_F(HeapFaultsTest, GrowthThatCannotWaitForTheTailStaysFreeAndFenced) {
  const auto tail = allocate(4_MiB);
  free_in_use(tail);
  const Fault<&Api::StreamWaitEvent> fault(stuck_table_, 1, CUDA_ERROR_UNKNOWN);

  const auto refused = heap_->allocate(6_MiB, main_, TagId::kUntagged);

  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.status().code(), Code::kDriver);
  EXPECT_EQ(heap_->view().check(), "");
  EXPECT_EQ(heap_->stats().allocated, 0_B);
  EXPECT_EQ(heap_->stats().pending, 6_MiB);
  EXPECT_EQ(allocate(6_MiB), tail);
}

TEST_F(HeapFaultsTest, ABlockThatCannotBeWaitedForStaysFreeAndFenced) {
  const auto block = allocate(4_MiB);
  free_in_use(block);
  const Fault<&Api::StreamWaitEvent> fault(stuck_table_, 1, CUDA_ERROR_UNKNOWN);

  const auto refused = heap_->allocate(4_MiB, main_, TagId::kUntagged);

  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.status().code(), Code::kDriver);
  EXPECT_NE(refused.status().detail().find("cuStreamWaitEvent"), std::string::npos);
  EXPECT_EQ(heap_->stats().pending, 4_MiB);
  EXPECT_EQ(allocate(4_MiB), block);
}

TEST_F(HeapFaultsTest, OutOfMemoryAtTheDriverIsTriedAgainAfterATrim) {
  free(allocate(4_MiB));
  const Fault<&Api::MemCreate> fault(table_, 1, CUDA_ERROR_OUT_OF_MEMORY);

  EXPECT_NE(allocate(6_MiB), driver::DevicePtr{});
  EXPECT_EQ(heap_->stats().driver_releases, 0U);  // the new block uses what was trimmed
  EXPECT_EQ(heap_->stats().driver_allocations, 3U);
  EXPECT_EQ(heap_->stats().reserved, 6_MiB);
}

TEST_F(HeapFaultsTest, ABlockWhoseUsersCannotBeMarkedIsNotHandedOutUntilTheyCan) {
  const auto block = allocate(4_MiB);
  heap_->record_use(block, side_);
  free(block);
  const auto record =
      std::exchange(table_.EventRecord, [](CUevent, CUstream) { return CUDA_ERROR_UNKNOWN; });
  EXPECT_EQ(heap_->allocate(4_MiB, main_, TagId::kUntagged).status().code(), Code::kDriver);
  table_.EventRecord = record;
  EXPECT_EQ(heap_->stats().pending, 4_MiB);
  EXPECT_EQ(allocate(4_MiB), block);
}

TEST_F(HeapFaultsTest, AChunkThatCannotBeUnmappedIsKeptAndUsed) {
  const auto block = allocate(2_MiB);
  free(block);
  const Fault<&Api::MemUnmap> fault(table_, 1, CUDA_ERROR_UNKNOWN);

  EXPECT_EQ(heap_->trim_sync(), 0_B);
  EXPECT_EQ(allocate(2_MiB), block);
  EXPECT_EQ(heap_->stats().reserved, 2_MiB);
}

TEST_F(HeapFaultsTest, MemoryThatTheDriverDoesNotReleaseCountsAsReserved) {
  const auto used = spillway_emulator_used(0);
  free(allocate(4_MiB));
  {
    const Fault<&Api::MemRelease> fault(table_, 1, CUDA_ERROR_UNKNOWN);
    heap_->trim_sync();
  }

  EXPECT_EQ(heap_->stats().reserved.count(), spillway_emulator_used(0) - used);
  EXPECT_EQ(heap_->stats().reserved, 2_MiB);
  EXPECT_EQ(heap_->view().check(), "");
  EXPECT_NE(allocate(4_MiB), driver::DevicePtr{});
  EXPECT_EQ(heap_->stats().reserved, 6_MiB);
}

TEST_F(HeapFaultsTest, AFenceThatCannotBeWaitedForKeepsItsChunkFromTrim) {
  const auto block = allocate(2_MiB);
  free_in_use(block);
  const Fault<&Api::EventSynchronize> fault(stuck_table_, 1, CUDA_ERROR_UNKNOWN);

  EXPECT_EQ(heap_->trim_sync(), 0_B);
  EXPECT_EQ(heap_->stats().pending, 2_MiB);
}

TEST_F(HeapFaultsTest, AMappingThatCannotBeUndoneIsCountedAndNotUsed) {
  const Fault<&Api::MemSetAccess> access(table_, 1, CUDA_ERROR_UNKNOWN);
  const Fault<&Api::MemUnmap> unmap(table_, 1, CUDA_ERROR_UNKNOWN);

  ASSERT_FALSE(heap_->allocate(2_MiB, main_, TagId::kUntagged).ok());

  EXPECT_EQ(heap_->stats().reserved, 2_MiB);
  EXPECT_EQ(heap_->view().check(), "");
  EXPECT_NE(allocate(2_MiB), driver::DevicePtr{});
  EXPECT_EQ(heap_->stats().reserved, 4_MiB);
}

TEST_F(HeapFaultsTest, AReservationThatFailsIsATypedError) {
  const Fault<&Api::MemAddressReserve> fault(table_, 1, CUDA_ERROR_UNKNOWN);

  const auto heap = Heap::create(device_, {});

  ASSERT_FALSE(heap.ok());
  EXPECT_EQ(heap.status().code(), Code::kDriver);
  EXPECT_NE(heap.status().detail().find("cuMemAddressReserve"), std::string::npos);
}

}  // namespace
}  // namespace spillway
