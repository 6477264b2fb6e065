// SPDX-License-Identifier: Apache-2.0
#include "allocator/driver/fence_set.h"

#include <gtest/gtest.h>

#include <array>
#include <memory>
#include <utility>

namespace spillway::driver {
namespace {

/// Fences of three streams that nothing has reached, until a test completes them.
bool reached = false;

class FenceSetTest : public testing::Test {
 protected:
  void SetUp() override {
    reached = false;
    table_ = *api().value();
    table_.EventQuery = [](CUevent event) {
      return reached ? api().value()->EventQuery(event) : CUDA_ERROR_NOT_READY;
    };
    device_ = Device::open(table_, DeviceId{0}).value();
    const CurrentDevice current(table_, device_.context);
    for (std::size_t each = 0; each < streams_.size(); ++each) {
      ASSERT_EQ(table_.StreamCreateWithPriority(&streams_.at(each), CU_STREAM_NON_BLOCKING, 0),
                CUDA_SUCCESS);
      timelines_.at(each) = std::make_unique<Timeline>(device_, Stream(streams_.at(each)));
    }
  }

  void TearDown() override {
    const CurrentDevice current(table_, device_.context);
    for (std::size_t each = 0; each < streams_.size(); ++each) {
      timelines_.at(each).reset();
      table_.StreamDestroy(streams_.at(each));
    }
  }

  Fence mark(std::size_t stream) { return timelines_.at(stream)->mark().value(); }

  Api table_{};
  Device device_{};
  std::array<CUstream, 3> streams_{};
  std::array<std::unique_ptr<Timeline>, 3> timelines_;
};

TEST_F(FenceSetTest, KeepsTheLatestFenceOfEachTimeline) {
  const Fence early = mark(0);
  const Fence late = mark(0);
  const Fence other = mark(1);

  EXPECT_EQ((FenceSet{late, early, other, Fence{}}), (FenceSet{late, other}));
  EXPECT_TRUE((FenceSet{Fence{}}).empty());
}

TEST_F(FenceSetTest, HoldsAsManyAsThereAreTimelines) {
  const Fence first = mark(0);
  const Fence second = mark(1);
  const Fence third = mark(2);
  FenceSet all{first, second};
  all.add(third);
  all.add(mark(1));

  EXPECT_EQ(all.end() - all.begin(), 3);
  EXPECT_EQ(*all.begin(), first);
  EXPECT_EQ(*(all.end() - 1), third);
  EXPECT_GT((all.begin() + 1)->point, second.point);
  EXPECT_EQ(all.wait(Stream(streams_[0])).value(), 3U);
}

TEST_F(FenceSetTest, ASetThatWasMovedFromCanBeFilledAgain) {
  FenceSet full{mark(0), mark(1), mark(2)};
  const FenceSet copy = full;
  const FenceSet moved = std::move(full);
  EXPECT_EQ(moved, copy);

  full.clear();
  EXPECT_TRUE(full.empty());
  full.add(*copy.begin());
  EXPECT_EQ(full, FenceSet{*copy.begin()});
}

TEST_F(FenceSetTest, ForgetsWhatHasPassed) {
  for (const std::size_t count : {1U, 2U, 3U}) {
    reached = false;
    FenceSet set;
    for (std::size_t each = 0; each < count; ++each)
      set.add(mark(each));
    const Fence first = *set.begin();

    EXPECT_FALSE(set.drop_passed());
    EXPECT_EQ(set.end() - set.begin(), static_cast<std::ptrdiff_t>(count));

    reached = true;
    ASSERT_TRUE(Timeline::wait_sync(first).ok());
    reached = false;
    EXPECT_EQ(set.drop_passed(), count == 1);
    EXPECT_EQ(set.end() - set.begin(), static_cast<std::ptrdiff_t>(count) - 1);

    EXPECT_TRUE(set.wait_sync().ok());
    EXPECT_TRUE(set.drop_passed());
  }
}

}  // namespace
}  // namespace spillway::driver
