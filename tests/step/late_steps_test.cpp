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
TEST(LateStepsTest, StepsThatEndOnTheDeviceAfterLaterOnesOnTheHostAreAllTimed) {
  const auto device = driver::Device::open(*driver::api().value(), DeviceId{0}).value();
  const driver::CurrentDevice current(*device.api, device.context);
  const driver::Stream stream{CUstream{nullptr}};
  AllocationCurve curve;
  StepRecording recording(device, curve);
  std::vector<std::size_t> timed;  // by when they ended
  std::size_t ended = 0;
  const auto take = [&] {
    recording.take(std::nullopt);
    for (const StepRecording::Duration& step : recording.take_durations()) {
      EXPECT_GE(step.seconds, 0);
      timed.push_back(ended - 1 - step.steps_ago);
    }
  };
  for (; ended < 6; ++ended) {
    take();
    recording.begin(stream);
    recording.follow();
    recording.end();
  }
  EXPECT_LT(timed.size(), 5U) << "the device was not late";

  device.api->StreamSynchronize(stream.handle());
  take();

  EXPECT_EQ(timed, (std::vector<std::size_t>{0, 1, 2, 3, 4, 5}));
}

TEST(LateStepsTest, MeasuredStepsThatEndLateOnTheDeviceAreAllMeasured) {
  const auto device = driver::Device::open(*driver::api().value(), DeviceId{0}).value();
  const driver::CurrentDevice current(*device.api, device.context);
  const driver::Stream stream{CUstream{nullptr}};
  AllocationCurve curve;
  StepRecording recording(device, curve);
  std::vector<std::size_t> measured;  // by when they ended
  std::size_t ended = 0;
  const auto take = [&](std::optional<std::chrono::milliseconds> wait) {
    for (const StepRecording::Measured& step : recording.take(wait)) {
      EXPECT_EQ(step.times.marks.size(), 2U);
      measured.push_back(ended - 1 - step.steps_ago);
    }
  };
  for (; ended < 6; ++ended) {
    take(std::nullopt);
    recording.begin(stream);
    recording.saved(0, stream);
    if (ended == 3) recording.follow();  // this one is not measured
    recording.end();
  }
  EXPECT_LT(measured.size(), 4U) << "the device was not late";

  take(std::chrono::seconds(10));

  EXPECT_EQ(measured, (std::vector<std::size_t>{0, 1, 2, 4, 5}));
}

TEST(LateStepsTest, OfAnyNumberOfLateStepsFewAreMeasured) {
  const auto device = driver::Device::open(*driver::api().value(), DeviceId{0}).value();
  const driver::CurrentDevice current(*device.api, device.context);
  const driver::Stream stream{CUstream{nullptr}};
  AllocationCurve curve;
  StepRecording recording(device, curve);
  for (int step = 0; step < 100; ++step) {
    recording.begin(stream);
    recording.saved(0, stream);
    recording.end();
  }

  device.api->StreamSynchronize(stream.handle());
  const auto measured = recording.take(std::nullopt);

  ASSERT_FALSE(measured.empty());
  EXPECT_EQ(measured.front().steps_ago, 99U);
  EXPECT_LT(measured.size(), 20U);
}

}  // namespace
}  // namespace spillway
