// SPDX-License-Identifier: Apache-2.0
#include "emulator/emulator.h"
#include "tests/heap/heap_fixture.h"

namespace spillway {
namespace {

class HeapTagsTest : public HeapTest {
 protected:
  [[nodiscard]] HeapTagInfo accounting_of(TagId tag) const {
    for (const HeapTagInfo& info : heap_->view().tags()) {
      if (info.tag == tag) return info;
    }
    return {};
  }
};

TEST_F(HeapTagsTest, EveryTagHasItsOwnAccounting) {
  static_cast<void>(allocate(1_MiB + 1_B, main_, TagId{3}));
  static_cast<void>(allocate(2_MiB, side_, TagId{3}));
  static_cast<void>(allocate(4_MiB, main_, TagId{700}));

  EXPECT_EQ(accounting_of(TagId{3}).allocated, 3_MiB + 512_B);
  EXPECT_EQ(accounting_of(TagId{3}).requested, 3_MiB + 1_B);
  EXPECT_EQ(accounting_of(TagId{3}).blocks, 2U);
  EXPECT_EQ(accounting_of(TagId{700}).allocated, 4_MiB);
  EXPECT_EQ(heap_->view().tags().size(), 2U);
}

TEST_F(HeapTagsTest, ATagsPeakIsThatOfItsOwnBlocks) {
  free(allocate(8_MiB, main_, TagId{3}));
  static_cast<void>(allocate(2_MiB, side_, TagId{3}));
  static_cast<void>(allocate(16_MiB));

  EXPECT_EQ(accounting_of(TagId{3}).allocated, 2_MiB);
  EXPECT_EQ(accounting_of(TagId{3}).allocated_peak, 8_MiB);
}

TEST_F(HeapTagsTest, ResetPeaksForgetsTagsWithoutBlocks) {
  free(allocate(8_MiB, main_, TagId{3}));
  static_cast<void>(allocate(2_MiB, main_, TagId{4}));
  heap_->view().reset_peaks();

  EXPECT_EQ(heap_->view().tags().size(), 1U);
  EXPECT_EQ(accounting_of(TagId{4}).allocated_peak, 2_MiB);
}

TEST_F(HeapTagsTest, TheBlocksOfATagAreFound) {
  const auto block = allocate(1_MiB, side_, TagId{3});
  static_cast<void>(allocate(1_MiB, main_, TagId{4}));
  free(allocate(2_MiB, main_, TagId{3}));

  const auto blocks = heap_->view().blocks_of(TagId{3});

  ASSERT_EQ(blocks.size(), 1U);
  EXPECT_EQ(blocks[0].at, block);
  EXPECT_EQ(blocks[0].stream, side_.handle());
}

TEST_F(HeapTagsTest, ARetaggedBlockCountsForItsNewTag) {
  const auto block = allocate(3_MiB, main_, TagId{3});
  static_cast<void>(allocate(1_MiB, main_, TagId{3}));

  EXPECT_TRUE(heap_->retag(block + 512_B, TagId{4}));
  EXPECT_EQ(accounting_of(TagId{3}).allocated, 1_MiB);
  EXPECT_EQ(accounting_of(TagId{4}).allocated, 3_MiB);
  EXPECT_EQ(accounting_of(TagId{4}).allocated_peak, 3_MiB);
  EXPECT_EQ(heap_->find(block).tag, TagId{4});
  free(block);
  EXPECT_EQ(accounting_of(TagId{4}).allocated, 0_B);
  EXPECT_FALSE(heap_->retag(block, TagId{3}));
}

TEST_F(HeapTagsTest, TheThreeKindsOfWasteAreCounted) {
  const auto first = allocate(1_MiB + 1_B);
  const auto second = allocate(3_MiB - 512_B);
  const auto third = allocate(4_MiB);
  heap_->add_fence(third, stuck_fence());
  free(first);
  free(third);

  const HeapStats stats = heap_->stats();
  EXPECT_EQ(stats.rounding, 0_B);
  EXPECT_EQ(stats.stranded, 1_MiB + 512_B);
  EXPECT_EQ(stats.pending, 4_MiB);
  EXPECT_EQ(stats.cached, 5_MiB + 512_B);
  static_cast<void>(allocate(1_B));
  EXPECT_EQ(heap_->stats().rounding, 511_B);
  EXPECT_EQ(heap_->find(second).size, 3_MiB - 512_B);
}

TEST_F(HeapTagsTest, AnEnabledPeerMayTouchOldAndNewMemory) {
  static int old_grants = 0;
  static std::size_t devices = 0;
  old_grants = 0;
  static_cast<void>(allocate(4_MiB));
  table_.MemSetAccess =
      [](CUdeviceptr at, std::size_t size, const CUmemAccessDesc* access, std::size_t count) {
        if (count == 1 && access[0].location.id == 1) ++old_grants;
        devices = count;
        return count == 1 && access[0].location.id == 1
                   ? CUDA_SUCCESS
                   : driver::api().value()->MemSetAccess(at, size, access, 1);
      };

  EXPECT_TRUE(heap_->enable_peer(DeviceId{1}).ok());
  EXPECT_TRUE(heap_->enable_peer(DeviceId{1}).ok());
  EXPECT_EQ(old_grants, 1);
  static_cast<void>(allocate(8_MiB));
  EXPECT_EQ(devices, 2U);
}

TEST_F(HeapTagsTest, APeerThatCannotBeEnabledChangesNothing) {
  static_cast<void>(allocate(4_MiB));
  const Fault<&driver::Api::MemSetAccess> fault(table_, 1, CUDA_ERROR_INVALID_DEVICE);

  EXPECT_EQ(heap_->enable_peer(DeviceId{1}).code(), Code::kDriver);
  EXPECT_NE(allocate(8_MiB), driver::DevicePtr{});
}

}  // namespace
}  // namespace spillway
