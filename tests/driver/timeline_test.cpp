// SPDX-License-Identifier: Apache-2.0
#include "allocator/driver/timeline.h"

#include "emulator/emulator.h"

#include <gtest/gtest.h>

#include <memory>
#include <thread>
#include <vector>

namespace spillway::driver {
namespace {

/// How many events, in the order of their first query, have passed. A test decides it.
bool open_gate = true;
int stream_waits = 0;

class TimelineTest : public testing::Test {
 protected:
  void SetUp() override {
    const auto real = api();
    ASSERT_TRUE(real.ok()) << real.status().message();
    open_gate = true;
    stream_waits = 0;
    table_ = *real.value();
    table_.EventQuery = [](CUevent event) {
      return open_gate ? api().value()->EventQuery(event) : CUDA_ERROR_NOT_READY;
    };
    table_.StreamWaitEvent = [](CUstream stream, CUevent event, unsigned flags) {
      ++stream_waits;
      return api().value()->StreamWaitEvent(stream, event, flags);
    };
    device_ = Device::open(table_, DeviceId{0}).value();
    current_ = std::make_unique<CurrentDevice>(table_, device_.context);
    ASSERT_EQ(table_.StreamCreateWithPriority(&work_, CU_STREAM_NON_BLOCKING, 0), CUDA_SUCCESS);
    ASSERT_EQ(table_.StreamCreateWithPriority(&other_, CU_STREAM_NON_BLOCKING, 0), CUDA_SUCCESS);
    timeline_ = std::make_unique<Timeline>(device_, Stream(work_));
  }

  void TearDown() override {
    timeline_.reset();
    table_.StreamDestroy(work_);
    table_.StreamDestroy(other_);
  }

  Api table_;
  Device device_{};
  std::unique_ptr<CurrentDevice> current_;
  CUstream work_ = nullptr;
  CUstream other_ = nullptr;
  std::unique_ptr<Timeline> timeline_;
};

TEST_F(TimelineTest, AFenceThatWasNeverMadeHasPassed) {
  EXPECT_TRUE(Timeline::passed({}));
  EXPECT_TRUE(Timeline::wait(Stream(other_), {}).ok());
  EXPECT_TRUE(Timeline::wait_sync({}).ok());
}

TEST_F(TimelineTest, AFencePassesWhenTheDeviceHasReachedIt) {
  open_gate = false;
  const Fence fence = timeline_->mark().value();
  EXPECT_FALSE(Timeline::passed(fence));

  open_gate = true;
  EXPECT_TRUE(Timeline::passed(fence));
}

TEST_F(TimelineTest, PointsOfAllTimelinesHaveTheOrderInWhichTheyWereMade) {
  Timeline second(device_, Stream(other_));
  std::uint64_t last = 0;
  for (int each = 0; each < 3; ++each) {
    for (Timeline* const of : {timeline_.get(), &second}) {
      const Fence promised = of->promise();
      EXPECT_GT(promised.point, last);
      EXPECT_EQ(of->mark().value(), promised);
      last = promised.point;
    }
  }
}

TEST_F(TimelineTest, AnotherStreamWaitsForAFenceOnTheDeviceOnly) {
  open_gate = false;
  const Fence fence = timeline_->mark().value();
  const auto host_syncs = counters().host_syncs;

  EXPECT_TRUE(Timeline::wait(Stream(other_), fence).ok());
  EXPECT_EQ(stream_waits, 1);
  EXPECT_EQ(counters().host_syncs, host_syncs);
}

TEST_F(TimelineTest, WorkComesBehindWhatAnotherStreamWasGivenAndIsMarked) {
  int waits_before_work = -1;
  open_gate = false;

  const Result<Fence> fence = timeline_->mark_after(Stream(other_), [&] {
    waits_before_work = stream_waits;
    return Status();
  });

  ASSERT_TRUE(fence.ok()) << fence.status().message();
  EXPECT_EQ(waits_before_work, 1);
  EXPECT_FALSE(Timeline::passed(fence.value()));
  open_gate = true;
  EXPECT_TRUE(Timeline::passed(fence.value()));
}

TEST_F(TimelineTest, WorkBehindItsOwnStreamWaitsForNothing) {
  ASSERT_TRUE(timeline_->mark_after(Stream(work_), [] { return Status(); }).ok());

  EXPECT_EQ(stream_waits, 0);
}

TEST_F(TimelineTest, WorkThatCannotBeGivenIsNotMarked) {
  const auto fails = [] {
    return SPILLWAY_ERROR(Code::kDriver, "no");
  };

  const Fence next = timeline_->promise();
  EXPECT_EQ(timeline_->mark_after(Stream(other_), fails).status().code(), Code::kDriver);
  EXPECT_EQ(timeline_->mark().value(), next);
}

TEST_F(TimelineTest, AStreamNeverWaitsForItself) {
  const Fence fence = timeline_->mark().value();

  EXPECT_TRUE(Timeline::wait(Stream(work_), fence).ok());
  EXPECT_EQ(stream_waits, 0);
}

TEST_F(TimelineTest, AFenceKnownToHavePassedIsNotWaitedForThoughLaterOnesHaveNot) {
  const Fence early = timeline_->mark().value();
  ASSERT_TRUE(Timeline::passed(early));
  open_gate = false;
  const Fence late = timeline_->mark().value();

  EXPECT_TRUE(Timeline::wait(Stream(other_), early).ok());
  EXPECT_EQ(stream_waits, 0);
  EXPECT_FALSE(Timeline::passed(late));
}

TEST_F(TimelineTest, AHostWaitIsCountedAndPassesTheFence) {
  open_gate = false;
  const Fence fence = timeline_->mark().value();
  const auto host_syncs = counters().host_syncs;
  const auto emulator_syncs = spillway_emulator_count("host_syncs");

  EXPECT_TRUE(Timeline::wait_sync(fence).ok());
  EXPECT_EQ(counters().host_syncs, host_syncs + 1);
  EXPECT_EQ(spillway_emulator_count("host_syncs"), emulator_syncs + 1);
  EXPECT_TRUE(Timeline::passed(fence));
}

TEST_F(TimelineTest, AHostWaitForWhatHasPassedIsNone) {
  const Fence fence = timeline_->mark().value();
  ASSERT_TRUE(Timeline::passed(fence));
  const auto host_syncs = counters().host_syncs;

  EXPECT_TRUE(Timeline::wait_sync(fence).ok());
  EXPECT_EQ(counters().host_syncs, host_syncs);
}

TEST_F(TimelineTest, EventsAreUsedAgain) {
  const auto created = spillway_emulator_count("cuEventCreate");
  for (int i = 0; i < 1000; ++i)
    ASSERT_TRUE(timeline_->mark().ok());

  EXPECT_LE(spillway_emulator_count("cuEventCreate") - created, 64U);
}

TEST_F(TimelineTest, AFailedMarkerLeavesTheTimelineAsItWas) {
  const Fence before = timeline_->mark().value();
  table_.EventRecord = [](CUevent, CUstream) {
    return CUDA_ERROR_UNKNOWN;
  };
  const auto failed = timeline_->mark();
  table_.EventRecord = api().value()->EventRecord;

  ASSERT_FALSE(failed.ok());
  EXPECT_EQ(failed.status().code(), Code::kDriver);
  EXPECT_EQ(timeline_->mark().value().point, before.point + 1);
}

TEST_F(TimelineTest, AHostWaitLeavesTheTimelineToOtherThreads) {
  open_gate = false;
  const Fence fence = timeline_->mark().value();
  static Timeline* other;
  static bool marked;
  other = timeline_.get();
  marked = false;
  table_.EventSynchronize = [](CUevent event) {
    std::thread([] { marked = other->mark().ok(); }).join();
    return api().value()->EventSynchronize(event);
  };

  EXPECT_TRUE(Timeline::wait_sync(fence).ok());
  EXPECT_TRUE(marked);
}

TEST_F(TimelineTest, AnEventThatIsWaitedForIsNotRecordedAgainMeanwhile) {
  open_gate = false;
  const Fence fence = timeline_->mark().value();
  static Timeline* other;
  static CUevent waited_for;
  static bool reused;
  other = timeline_.get();
  reused = false;
  table_.EventRecord = [](CUevent event, CUstream stream) {
    reused = reused || event == waited_for;
    return api().value()->EventRecord(event, stream);
  };
  table_.EventSynchronize = [](CUevent event) {
    waited_for = event;
    const CUresult result = api().value()->EventSynchronize(event);
    open_gate = true;
    // Sees the fence pass, and so takes its event back.
    EXPECT_TRUE(Timeline::passed({other, 1}));
    EXPECT_TRUE(other->mark().ok());
    return result;
  };

  EXPECT_TRUE(Timeline::wait_sync(fence).ok());
  EXPECT_FALSE(reused);
  EXPECT_TRUE(timeline_->mark().ok());
  EXPECT_TRUE(reused);
}

TEST_F(TimelineTest, AStreamThatIsGoneHasPassedOnceTheDeviceIsDone) {
  const Fence promised = timeline_->promise();
  ASSERT_EQ(table_.StreamDestroy(work_), CUDA_SUCCESS);
  const auto before = counters();
  const auto emulator_syncs = spillway_emulator_count("host_syncs");

  EXPECT_FALSE(Timeline::passed(promised));
  EXPECT_EQ(spillway_emulator_count("host_syncs"), emulator_syncs);
  EXPECT_TRUE(Timeline::wait(Stream(other_), promised).ok());
  EXPECT_TRUE(Timeline::passed(promised));
  EXPECT_EQ(stream_waits, 0);
  EXPECT_EQ(counters().lost_streams, before.lost_streams + 1);
  EXPECT_EQ(spillway_emulator_count("host_syncs"), emulator_syncs + 1);
}

TEST_F(TimelineTest, AStreamThatIsGoneHasNotPassedWhereTheDeviceCannotBeWaitedFor) {
  const Fence promised = timeline_->promise();
  ASSERT_EQ(table_.StreamDestroy(work_), CUDA_SUCCESS);
  table_.CtxSynchronize = [] {
    return CUDA_ERROR_UNKNOWN;
  };

  EXPECT_EQ(Timeline::wait_sync(promised).code(), Code::kDriver);
  EXPECT_FALSE(Timeline::passed(promised));
}

TEST_F(TimelineTest, WhatIsNoStreamIsFoundOut) {
  ASSERT_EQ(table_.StreamDestroy(other_), CUDA_SUCCESS);
  Timeline gone(device_, Stream(other_));

  EXPECT_EQ(gone.verify().code(), Code::kInvalidArgument);
  EXPECT_TRUE(timeline_->verify().ok());
  ASSERT_EQ(table_.StreamDestroy(work_), CUDA_SUCCESS);
  EXPECT_EQ(timeline_->verify().code(), Code::kInvalidArgument);
}

}  // namespace
}  // namespace spillway::driver
