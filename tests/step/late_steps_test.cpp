// SPDX-License-Identifier: Apache-2.0
#include "allocator/device/step_recording.h"
#include "allocator/driver/api.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cstddef>
#include <optional>
#include <vector>

namespace spillway {
namespace {

/// A device that has done nothing before the host waits for it.
class LateStepsTest : public testing::Test {
 protected:
  const driver::Device device_ = driver::Device::open(*driver::api().value(), DeviceId{0}).value();
  const driver::CurrentDevice current_{*device_.api, device_.context};
  const driver::Stream stream_{CUstream{nullptr}};
  AllocationCurve curve_;
  StepRecording recording_{device_, curve_};
};

TEST_F(LateStepsTest, StepsThatEndOnTheDeviceAfterLaterOnesOnTheHostAreAllTimed) {
  std::vector<std::size_t> timed;  // by when they ended
  std::size_t ended = 0;
  const auto take = [&] {
    recording_.take(std::nullopt);
    for (const StepRecording::Duration& step : recording_.take_durations()) {
      EXPECT_GE(step.seconds, 0);
      timed.push_back(ended - 1 - step.steps_ago);
    }
  };
  for (; ended < 6; ++ended) {
    take();
    recording_.begin(stream_);
    recording_.follow();
    recording_.end();
  }
  EXPECT_LT(timed.size(), 5U) << "the device was not late";

  device_.api->StreamSynchronize(stream_.handle());
  take();

  EXPECT_EQ(timed, (std::vector<std::size_t>{0, 1, 2, 3, 4, 5}));
}

TEST_F(LateStepsTest, MeasuredStepsThatEndLateOnTheDeviceAreAllMeasured) {
  std::vector<std::size_t> measured;  // by when they ended
  std::size_t ended = 0;
  const auto take = [&](std::optional<std::chrono::milliseconds> wait) {
    for (const StepRecording::Measured& step : recording_.take(wait)) {
      EXPECT_EQ(step.times.marks.size(), 2U);
      measured.push_back(ended - 1 - step.steps_ago);
    }
  };
  for (; ended < 6; ++ended) {
    take(std::nullopt);
    recording_.begin(stream_);
    recording_.saved(0, stream_);
    if (ended == 3) recording_.follow();  // this one is not measured
    recording_.end();
  }
  EXPECT_LT(measured.size(), 4U) << "the device was not late";

  take(std::chrono::seconds(10));

  EXPECT_EQ(measured, (std::vector<std::size_t>{0, 1, 2, 4, 5}));
}

TEST_F(LateStepsTest, OfAnyNumberOfLateStepsFewAreMeasured) {
  for (int step = 0; step < 100; ++step) {
    recording_.begin(stream_);
    recording_.saved(0, stream_);
    recording_.end();
  }

  device_.api->StreamSynchronize(stream_.handle());
  const auto measured = recording_.take(std::nullopt);

  ASSERT_FALSE(measured.empty());
  EXPECT_EQ(measured.front().steps_ago, 99U);
  EXPECT_LT(measured.size(), 20U);
}

}  // namespace
}  // namespace spillway
