// SPDX-License-Identifier: Apache-2.0
#include "allocator/device/step_recording.h"
#include "allocator/driver/api.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
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
  static constexpr std::chrono::milliseconds kMost = std::chrono::seconds(10);
};

TEST_F(LateStepsTest, StepsThatEndOnTheDeviceAfterLaterOnesOnTheHostAreAllTimed) {
  std::vector<std::size_t> timed;  // by when they ended
  std::size_t ended = 0;
  const auto take = [&] {
    recording_.take(false, kMost);
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
  const auto take = [&](bool waits) {
    for (const StepRecording::Measured& step : recording_.take(waits, kMost)) {
      EXPECT_EQ(step.times.marks.size(), 2U);
      measured.push_back(ended - 1 - step.steps_ago);
    }
  };
  for (; ended < 6; ++ended) {
    take(false);
    recording_.begin(stream_);
    recording_.saved(0, stream_);
    if (ended == 3) recording_.follow();  // this one is not measured
    recording_.end();
  }
  EXPECT_LT(measured.size(), 4U) << "the device was not late";

  take(true);

  EXPECT_EQ(measured, (std::vector<std::size_t>{0, 1, 2, 4, 5}));
}

TEST_F(LateStepsTest, AHostThatIsFarAheadWaitsForTheOldestStepSoThatEveryOneIsMeasured) {
  constexpr std::size_t kSteps = 100;
  std::size_t measured = 0;
  std::size_t most_late = 0;
  std::size_t most_at_once = 0;
  for (std::size_t step = 0; step < kSteps; ++step) {
    const std::size_t taken = recording_.take(false, kMost).size();
    measured += taken;
    most_at_once = std::max(most_at_once, taken);
    most_late = std::max(most_late, step - measured);
    recording_.begin(stream_);
    recording_.saved(0, stream_);
    recording_.end();
  }
  measured += recording_.take(true, kMost).size();

  EXPECT_EQ(measured, kSteps);
  EXPECT_GT(most_late, 1U) << "the device was not late";
  EXPECT_LT(most_late, 20U);
  EXPECT_LT(most_at_once, most_late / 2) << "the device had nothing left to do";
}

}  // namespace
}  // namespace spillway
