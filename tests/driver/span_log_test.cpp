// SPDX-License-Identifier: Apache-2.0
#include "allocator/driver/span_log.h"

#include "allocator/driver/timeline.h"
#include "emulator/emulator.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string_view>

namespace spillway::driver {
namespace {

class SpanLogTest : public testing::Test {
 protected:
  void SetUp() override {
    device_ = Device::open(*api().value(), DeviceId{0}).value();
    current_ = std::make_unique<CurrentDevice>(*device_.api, device_.context);
    ASSERT_EQ(device_.api->StreamCreateWithPriority(&work_, CU_STREAM_NON_BLOCKING, 0),
              CUDA_SUCCESS);
    ASSERT_EQ(device_.api->StreamCreateWithPriority(&other_, CU_STREAM_NON_BLOCKING, 0),
              CUDA_SUCCESS);
  }

  void TearDown() override {
    log_.stop();
    device_.api->StreamDestroy(work_);
    device_.api->StreamDestroy(other_);
  }

  /// A stream waits for another one.
  void wait() {
    Timeline timeline(device_, Stream(work_));
    ASSERT_TRUE(Timeline::wait(Stream(other_), timeline.mark().value()).ok());
  }

  std::vector<Span> taken() {
    device_.api->CtxSynchronize();
    return log_.take();
  }

  SpanLog& log_ = SpanLog::instance();
  Device device_{};
  std::unique_ptr<CurrentDevice> current_;
  CUstream work_ = nullptr;
  CUstream other_ = nullptr;
};

TEST_F(SpanLogTest, OffNothingIsTimed) {
  wait();
  log_.start();
  EXPECT_TRUE(taken().empty());
}

TEST_F(SpanLogTest, AWaitNamesBothStreamsAndWhatItWasFor) {
  log_.start();
  {
    const SpanLog::Subject around(TagId{3}, 30);
    {
      const SpanLog::Subject subject(TagId{4}, 40);
      wait();
    }
    wait();
  }
  const auto spans = taken();
  ASSERT_EQ(spans.size(), 2U);
  EXPECT_EQ(spans[0].kind, Span::Kind::kWait);
  EXPECT_EQ(spans[0].stream, reinterpret_cast<std::uint64_t>(other_));
  EXPECT_EQ(spans[0].other, reinterpret_cast<std::uint64_t>(work_));
  EXPECT_EQ(spans[0].storage, 40U);
  EXPECT_EQ(spans[1].tag, TagId{3});
  EXPECT_LE(spans[0].begin, spans[0].end);
}

TEST_F(SpanLogTest, WhatWasTakenIsGone) {
  log_.start();
  wait();
  EXPECT_EQ(taken().size(), 1U);
  EXPECT_TRUE(taken().empty());
}

TEST_F(SpanLogTest, AMarkIsRemadeOnTheSameStream) {
  log_.start();
  log_.mark(device_, Stream(other_));
  log_.mark_again();
  const auto spans = taken();
  ASSERT_EQ(spans.size(), 2U);
  EXPECT_EQ(spans[1].stream, reinterpret_cast<std::uint64_t>(other_));
  EXPECT_GE(spans[1].begin, spans[0].begin);
}

TEST_F(SpanLogTest, AMarkIsMadeWhereSomeoneKnewThatTheDeviceComputes) {
  log_.start();
  log_.computes_on(device_, Stream(other_));
  EXPECT_TRUE(taken().empty());
  log_.mark_again();
  const auto spans = taken();
  ASSERT_EQ(spans.size(), 1U);
  EXPECT_EQ(spans[0].stream, reinterpret_cast<std::uint64_t>(other_));
}

TEST_F(SpanLogTest, ALateEndIsWaitedForButNotIndefinitely) {
  const char* const schedule =
      std::getenv("SPILLWAY_EMULATE_SCHEDULE");  // NOLINT(concurrency-mt-unsafe)
  const bool late = schedule != nullptr && std::string_view(schedule) == "late";
  log_.start();
  log_.mark(device_, Stream(work_));
  log_.wait(std::chrono::milliseconds(0));
  EXPECT_EQ(log_.take().size(), late ? 0U : 1U);
  log_.wait(std::chrono::minutes(1));
  EXPECT_EQ(log_.take().size(), late ? 1U : 0U);
}

// Runs where SPILLWAY_EMULATE_CLOCK=virtual.
TEST_F(SpanLogTest, AVirtualClockIsWaitedForWithoutRealSleeps) {
  if (spillway_emulator_clock_is_virtual() == 0) GTEST_SKIP() << "the clock is real";
  constexpr double kSecond = 400e12;  // operations, at the emulated GPU's rate
  const std::uint64_t sleeps = counters().sleeps;
  log_.start();
  spillway_emulator_cost(work_, 1, 10 * kSecond, 0, 1);
  log_.mark(device_, Stream(work_));
  log_.wait(std::chrono::minutes(1));
  EXPECT_EQ(log_.take().size(), 1U);

  spillway_emulator_cost(work_, 1, 100 * kSecond, 0, 1);
  log_.mark(device_, Stream(work_));
  const double before = spillway_emulator_now_ms();
  log_.wait(std::chrono::minutes(1));
  EXPECT_TRUE(log_.take().empty());
  EXPECT_GE(spillway_emulator_now_ms() - before, 60e3);
  EXPECT_EQ(counters().sleeps, sleeps);
}

// Runs where SPILLWAY_EMULATE_CLOCK=virtual.
TEST_F(SpanLogTest, ThatStepOnlyIsWaitedFor) {
  if (spillway_emulator_clock_is_virtual() == 0) GTEST_SKIP() << "the clock is real";
  constexpr double kTenth = 40e12;  // operations, at the emulated GPU's rate
  log_.start(SpanLog::Reader::kPlan);
  for (const std::uint64_t step : {std::uint64_t{1}, std::uint64_t{2}}) {
    spillway_emulator_cost(work_, 1, kTenth, 0, 1);
    ASSERT_TRUE(log_.mark_step(device_, Stream(work_), Span::Kind::kEnded, step, 0));
  }
  log_.wait(std::chrono::minutes(1), SpanLog::EndOfStep{device_.id, 1});
  const auto ended = log_.take(SpanLog::Reader::kPlan);
  ASSERT_EQ(ended.size(), 1U) << "the device has the second one left";
  EXPECT_EQ(ended[0].storage, 1U);

  log_.wait(std::chrono::minutes(1));
  EXPECT_EQ(log_.take(SpanLog::Reader::kPlan).size(), 1U);
  log_.stop(SpanLog::Reader::kPlan);
}

TEST_F(SpanLogTest, KernelsAreTimedAndTakenByThemselves) {
  const Stream stream(work_);
  EXPECT_TRUE(log_.end(device_, stream, log_.begin(device_, stream, Span::Kind::kKernel)));
  log_.start();
  wait();

  EXPECT_EQ(taken().size(), 1U);
  log_.stop();
  const auto kernels = log_.take_kernels();
  ASSERT_EQ(kernels.size(), 1U);
  EXPECT_EQ(kernels[0].kind, Span::Kind::kKernel);
  EXPECT_EQ(kernels[0].stream, reinterpret_cast<std::uint64_t>(work_));
  EXPECT_LE(kernels[0].begin, kernels[0].end);
  EXPECT_TRUE(log_.take_kernels().empty());
}

TEST_F(SpanLogTest, AKernelThatIsForgottenOrDroppedIsNotTaken) {
  const Stream stream(work_);
  EXPECT_TRUE(log_.end(device_, stream, log_.begin(device_, stream, Span::Kind::kKernel)));
  log_.forget_kernels();
  log_.drop(device_, log_.begin(device_, stream, Span::Kind::kKernel));

  device_.api->CtxSynchronize();
  EXPECT_TRUE(log_.take_kernels().empty());
}

TEST_F(SpanLogTest, ADriverWithoutTimesChangesNothingElse) {
  log_.start();
  spillway_emulator_fault("cuEventElapsedTime:1+=unknown");
  wait();
  EXPECT_TRUE(taken().empty());
  spillway_emulator_fault(nullptr);
  EXPECT_EQ(taken().size(), 1U);
}

}  // namespace
}  // namespace spillway::driver
