// SPDX-License-Identifier: Apache-2.0
#include "allocator/heap/former_mappings.h"

#include "tests/heap/heap_fixture.h"

#include <optional>

namespace spillway {
namespace {

/// Two chunks of 2 MiB with addresses side by side that they have left. No query sees an event to
/// have passed until `passed_` is set.
class FormerMappingsTest : public HeapTest {
 protected:
  static constexpr int kCount = 2;

  void SetUp() override {
    HeapTest::SetUp();
    passed_ = false;
    waits_ = 0;
    unmaps_ = 0;
    waits_at_unmap_ = 0;
    table_.EventQuery = [](CUevent) {
      return passed_ ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
    };
    table_.EventSynchronize = [](CUevent event) {
      ++waits_;
      return driver::api().value()->EventSynchronize(event);
    };
    table_.MemUnmap = [](CUdeviceptr at, std::size_t bytes) {
      ++unmaps_;
      waits_at_unmap_ = waits_;
      return driver::api().value()->MemUnmap(at, bytes);
    };
    ASSERT_EQ(table_.MemAddressReserve(&base_, kCount * size_.count(), 0, 0, 0), CUDA_SUCCESS);
    formers_.emplace(device_);
    const CUmemAllocationProp memory{CU_MEM_ALLOCATION_TYPE_PINNED,
                                     CU_MEM_HANDLE_TYPE_NONE,
                                     {CU_MEM_LOCATION_TYPE_DEVICE, {0}},
                                     nullptr,
                                     {}};
    driver::Timeline& uses = timeline(table_);
    for (int each = 0; each < kCount; ++each) {
      auto& chunk = chunks_[each];
      ASSERT_EQ(table_.MemCreate(&chunk, size_.count(), &memory, 0), CUDA_SUCCESS);
      ASSERT_EQ(table_.MemMap(at(each).address(), size_.count(), 0, chunk, 0), CUDA_SUCCESS);
      formers_->add(at(each), {size_, chunk, {uses.mark().value()}});
    }
  }

  void TearDown() override {
    passed_ = true;
    formers_.reset();
    for (const CUmemGenericAllocationHandle chunk : chunks_)
      table_.MemRelease(chunk);
    table_.MemAddressFree(base_, kCount * size_.count());
    HeapTest::TearDown();
  }

  [[nodiscard]] driver::DevicePtr at(int index) const {
    return driver::DevicePtr(base_) + Bytes{static_cast<std::size_t>(index) * size_.count()};
  }

  const Bytes size_ = 2_MiB;
  CUdeviceptr base_ = 0;
  CUmemGenericAllocationHandle chunks_[kCount] = {};
  std::optional<FormerMappings> formers_;
  static inline bool passed_ = false;
  static inline int waits_ = 0;
  static inline int unmaps_ = 0;
  static inline int waits_at_unmap_ = 0;
};

TEST_F(FormerMappingsTest, AMappingEndsAfterAWaitForItsLastUse) {
  ASSERT_TRUE(formers_->clear(Range{at(0) + 1_MiB, 1_MiB}).ok());

  EXPECT_EQ(unmaps_, 1);
  EXPECT_EQ(waits_at_unmap_, 1);
  EXPECT_FALSE(formers_->in_use(Range{at(0), size_}));
  EXPECT_TRUE(formers_->in_use(Range{at(1), size_}));
}

TEST_F(FormerMappingsTest, ThoseOfAChunkEndBeforeItIsReleased) {
  ASSERT_TRUE(formers_->clear(chunks_[0]).ok());

  EXPECT_EQ(unmaps_, 1);
  EXPECT_EQ(waits_at_unmap_, 1);
  EXPECT_FALSE(formers_->in_use(chunks_[0]));
  EXPECT_TRUE(formers_->in_use(chunks_[1]));
}

TEST_F(FormerMappingsTest, OnlyThoseWhoseLastUseHasPassedEndWithoutAWait) {
  formers_->clear_passed();
  EXPECT_EQ(unmaps_, 0);

  passed_ = true;
  formers_->clear_passed();

  EXPECT_EQ(unmaps_, kCount);
  EXPECT_EQ(waits_, 0);
}

TEST_F(FormerMappingsTest, OneIsInUseUntilAllUsesHavePassed) {
  ASSERT_TRUE(formers_->clear(Range{at(0), size_}).ok());
  passed_ = true;
  formers_->look_again();
  formers_->add(at(0), {size_, chunks_[0], {passed_fence(), stuck_fence()}});
  ASSERT_EQ(table_.MemMap(at(0).address(), size_.count(), 0, chunks_[0], 0), CUDA_SUCCESS);
  EXPECT_TRUE(formers_->in_use(Range{at(0), size_}));
  EXPECT_FALSE(formers_->in_use(Range{at(1), size_}));
}

TEST_F(FormerMappingsTest, TheDriverIsAskedOnceAboutUsesUpToAnEarlierOneThatHasNotPassed) {
  static int queries = 0;
  queries = 0;
  table_.EventQuery = [](CUevent) {
    ++queries;
    return CUDA_ERROR_NOT_READY;
  };
  for (int each = 0; each < 8; ++each)
    EXPECT_TRUE(formers_->in_use(Range{at(each % kCount), size_}));
  EXPECT_LE(queries, kCount);
}

TEST_F(FormerMappingsTest, OneThatCannotBeWaitedForStays) {
  table_.EventSynchronize = [](CUevent) {
    return CUDA_ERROR_UNKNOWN;
  };

  EXPECT_FALSE(formers_->clear(Range{at(0), size_}).ok());

  EXPECT_EQ(unmaps_, 0);
  EXPECT_TRUE(formers_->in_use(Range{at(0), size_}));
}

TEST_F(FormerMappingsTest, AccessIsGrantedToAll) {
  static int grants = 0;
  grants = 0;
  table_.MemSetAccess = [](CUdeviceptr, std::size_t, const CUmemAccessDesc*, std::size_t) {
    ++grants;
    return CUDA_SUCCESS;
  };
  const std::vector<CUmemAccessDesc> access{driver::access_of(DeviceId{0})};

  EXPECT_TRUE(formers_->allow(access).ok());

  EXPECT_EQ(grants, kCount);
}

}  // namespace
}  // namespace spillway
