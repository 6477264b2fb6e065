// SPDX-License-Identifier: Apache-2.0
#include "emulator/emulator.h"
#include "tests/heap/heap_fixture.h"

#include <cstring>

namespace spillway {
namespace {

class HeapBlocksTest : public HeapTest {};

TEST_F(HeapBlocksTest, BlocksAreAlignedTo512Bytes) {
  const auto first = allocate(1_B);
  const auto second = allocate(513_B);
  const auto third = allocate(3_MiB + 1_B);

  EXPECT_EQ(first.address() % 512, 0U);
  EXPECT_EQ(second.address() % 512, 0U);
  EXPECT_EQ(third.address() % 512, 0U);
  EXPECT_EQ(heap_->stats().allocated, 512_B + 1024_B + 3_MiB + 512_B);
  EXPECT_EQ(heap_->stats().requested, 1_B + 513_B + 3_MiB + 1_B);
}

TEST_F(HeapBlocksTest, NoBytesAreANullPointer) {
  const auto block = heap_->allocate(0_B, main_, TagId::kUntagged);

  ASSERT_TRUE(block.ok());
  EXPECT_EQ(block.value(), driver::DevicePtr{});
  heap_->free(block.value());
  EXPECT_EQ(heap_->stats().frees, 0U);
}

TEST_F(HeapBlocksTest, AFreedBlockIsReusedOnItsStream) {
  const auto first = allocate(4_MiB);
  free(first);

  EXPECT_EQ(allocate(4_MiB), first);
  EXPECT_EQ(heap_->stats().reserved, 4_MiB);
}

TEST_F(HeapBlocksTest, AFreedBlockIsNotReusedOnAnotherStream) {
  const auto first = allocate(4_MiB, main_);
  free(first);

  EXPECT_NE(allocate(4_MiB, side_), first);
  EXPECT_EQ(heap_->stats().reserved, 8_MiB);
}

TEST_F(HeapBlocksTest, TheSmallestBlockThatIsLargeEnoughIsTaken) {
  const auto large = allocate(8_MiB);
  static_cast<void>(allocate(2_MiB));
  const auto fitting = allocate(4_MiB);
  static_cast<void>(allocate(2_MiB));
  free(large);
  free(fitting);

  EXPECT_EQ(allocate(3_MiB), fitting);
}

TEST_F(HeapBlocksTest, TheRestOfASplitBlockIsReused) {
  const auto whole = allocate(8_MiB);
  free(whole);

  EXPECT_EQ(allocate(6_MiB), whole);
  EXPECT_EQ(allocate(2_MiB), whole + 6_MiB);
  EXPECT_EQ(heap_->stats().reserved, 8_MiB);
}

TEST_F(HeapBlocksTest, ThreeFreedNeighborsServeOneBlockWithoutGrowth) {
  const auto first = allocate(2_MiB);
  const auto second = allocate(4_MiB);
  const auto third = allocate(2_MiB);
  free(first);
  free(third);
  free(second);

  EXPECT_EQ(allocate(8_MiB), first);
  EXPECT_EQ(heap_->stats().reserved, 8_MiB);
}

TEST_F(HeapBlocksTest, GrowthMapsOnlyTheBytesMissingAfterTheFreeTail) {
  static_cast<void>(allocate(4_MiB));
  const auto tail = allocate(6_MiB);
  free(tail);

  EXPECT_EQ(allocate(10_MiB), tail);
  EXPECT_EQ(heap_->stats().reserved, 14_MiB);
}

TEST_F(HeapBlocksTest, SmallAndLargeBlocksDoNotMix) {
  const auto large = allocate(4_MiB);
  free(large);
  const auto small = allocate(128_KiB);

  EXPECT_FALSE(large <= small && small < large + 4_MiB);
  EXPECT_EQ(heap_->stats().reserved, 6_MiB);
}

TEST_F(HeapBlocksTest, ABlockKeepsItsBytesWhileOthersComeAndGo) {
  const auto kept = allocate(3_MiB);
  std::memset(kept.raw(), 0x5A, (3_MiB).count());
  const auto before = allocate(2_MiB);
  const auto after = allocate(16_MiB);
  std::memset(before.raw(), 1, (2_MiB).count());
  std::memset(after.raw(), 2, (16_MiB).count());
  free(before);
  free(after);
  heap_->trim_sync();

  const std::vector<char> expected((3_MiB).count(), 0x5A);
  EXPECT_EQ(std::memcmp(kept.raw(), expected.data(), expected.size()), 0);
}

TEST_F(HeapBlocksTest, AnAddressInsideAnAllocatedBlockFindsIt) {
  const auto tag = TagId{7};
  const auto at = allocate(3_MiB + 100_B, main_, tag);

  const HeapBlockInfo found = heap_->find(at + 3_MiB);

  EXPECT_EQ(found.at, at);
  EXPECT_EQ(found.size, 3_MiB + 512_B);
  EXPECT_EQ(found.requested, 3_MiB + 100_B);
  EXPECT_EQ(found.tag, tag);
  EXPECT_TRUE(found.allocated);
}

TEST_F(HeapBlocksTest, FreeAndForeignAddressesFindNothing) {
  const auto freed = allocate(3_MiB);
  free(freed);

  EXPECT_TRUE(heap_->find(freed).size.zero());
  EXPECT_TRUE(heap_->find(driver::DevicePtr(&freed)).size.zero());
  EXPECT_FALSE(heap_->record_use(freed, side_));
  EXPECT_FALSE(heap_->add_fence(freed, passed_fence()));
}

TEST_F(HeapBlocksTest, SegmentsShowEveryBlockInOrder) {
  const auto first = allocate(2_MiB, main_, TagId{3});
  const auto second = allocate(4_MiB);
  free(first);

  const auto segments = heap_->view().segments();

  ASSERT_EQ(segments.size(), 1U);
  EXPECT_EQ(segments[0].at, first);
  EXPECT_EQ(segments[0].size, 6_MiB);
  EXPECT_EQ(segments[0].stream, main_.handle());
  ASSERT_EQ(segments[0].blocks.size(), 2U);
  EXPECT_FALSE(segments[0].blocks[0].allocated);
  EXPECT_EQ(segments[0].blocks[0].tag, TagId::kUntagged);
  EXPECT_TRUE(segments[0].blocks[1].allocated);
  EXPECT_EQ(segments[0].blocks[1].at, second);
}

TEST_F(HeapBlocksTest, OneReservationServesSeveralStreams) {
  const auto reservations = spillway_emulator_count("cuMemAddressReserve");
  static_cast<void>(allocate(2_MiB, main_));
  static_cast<void>(allocate(2_MiB, side_));
  static_cast<void>(allocate(1_KiB, side_));

  EXPECT_EQ(spillway_emulator_count("cuMemAddressReserve"), reservations);
}

TEST_F(HeapBlocksTest, MoreStreamsThanOneReservationHoldsGetTheirBlocks) {
  std::vector<driver::DevicePtr> blocks;
  for (int i = 0; i < 20; ++i)
    blocks.push_back(allocate(2_MiB, make_stream()));

  EXPECT_EQ(heap_->stats().allocated_blocks, 20U);
  EXPECT_EQ(heap_->find(blocks.back()).at, blocks.back());
}

TEST_F(HeapBlocksTest, ABadFreeIsRejectedAndCounted) {
  const auto block = allocate(4_KiB);
  EXPECT_FALSE(heap_->free(block + 512_B));
  EXPECT_FALSE(heap_->free(driver::DevicePtr(&block)));
  EXPECT_TRUE(heap_->free(block));
  EXPECT_FALSE(heap_->free(block));

  EXPECT_EQ(heap_->stats().bad_frees, 3U);
  EXPECT_EQ(heap_->stats().frees, 1U);
}

}  // namespace
}  // namespace spillway
