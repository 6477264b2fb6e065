// SPDX-License-Identifier: Apache-2.0
// The virtual clock, with 10 GiB/s to the device, 5 GiB/s back and 10 us of latency.
#include "tests/emulator/emulated.h"

#include <functional>

namespace {

using namespace emulated;

constexpr std::size_t kCopied = 16 * kMiB;
constexpr double kLatency = 0.010;  // milliseconds
constexpr double kToDevice = kLatency + 16.0 / 10240 * 1000;
constexpr double kFromDevice = kLatency + 16.0 / 5120 * 1000;

cudaEvent_t timed_event() {
  cudaEvent_t event = nullptr;
  EXPECT_EQ(cudaEventCreate(&event), cudaSuccess);
  return event;
}

class ClockTest : public emulated::Test {
 protected:
  /// Milliseconds from before `body` until what the stream had been given then has ended.
  double time(cudaStream_t stream, const std::function<void()>& body) {
    cudaEvent_t start = timed_event();
    cudaEvent_t end = timed_event();
    float milliseconds = -1;
    EXPECT_EQ(cudaEventRecord(start, stream), cudaSuccess);
    body();
    EXPECT_EQ(cudaEventRecord(end, stream), cudaSuccess);
    EXPECT_EQ(cudaEventSynchronize(end), cudaSuccess);
    EXPECT_EQ(cudaEventElapsedTime(&milliseconds, start, end), cudaSuccess);
    return static_cast<double>(milliseconds);
  }

  void send(cudaStream_t stream) { copy(block_.at(), host_.at(), kCopied, stream); }

  void bring(cudaStream_t stream) { copy(other_host_.at(), other_.at(), kCopied, stream); }

  const LockedBytes host_{kCopied, 1};
  const LockedBytes other_host_{kCopied, 1};
  const DeviceBytes block_{kCopied};
  const DeviceBytes other_{kCopied};
  cudaStream_t one_ = make_stream();
  cudaStream_t two_ = make_stream();
};

/// What the host's own calls take beside the copies is below 2 per cent.
#define EXPECT_TIME(value, expected)  \
  do {                                \
    const double took = value;        \
    EXPECT_GE(took, expected);        \
    EXPECT_LE(took, (expected)*1.02); \
  } while (false)

TEST_F(ClockTest, ACopyTakesLatencyAndBytesByTheSpeedOfItsDirection) {
  EXPECT_TIME(time(one_, [&] { send(one_); }), kToDevice);
  EXPECT_TIME(time(one_, [&] { bring(one_); }), kFromDevice);
}

TEST_F(ClockTest, ALargeCopyDoesToo) {
  const LockedBytes host(64 * kMiB, 1);
  const DeviceBytes block(64 * kMiB);

  EXPECT_TIME(time(one_, [&] { copy(block.at(), host.at(), 64 * kMiB, one_); }),
              kLatency + 64.0 / 10240 * 1000);
}

TEST_F(ClockTest, CopiesInBothDirectionsTakeTheLongerOne) {
  EXPECT_TIME(time(one_,
                   [&] {
                     order(one_, two_);
                     send(one_);
                     bring(two_);
                     order(two_, one_);
                   }),
              kFromDevice);
}

TEST_F(ClockTest, TwoCopiesInOneDirectionTakeTheSum) {
  EXPECT_TIME(time(one_,
                   [&] {
                     order(one_, two_);
                     send(one_);
                     send(two_);
                     order(two_, one_);
                   }),
              2 * kToDevice);
}

TEST_F(ClockTest, ASmallCopyPassesCopiesOfAnotherStreamThatHaveNotBegun) {
  EXPECT_TIME(time(two_,
                   [&] {
                     for (int each = 0; each < 4; ++each)
                       send(one_);
                     copy(other_.at(), other_host_.at(), 8, two_);
                   }),
              kToDevice + kLatency);
}

TEST_F(ClockTest, ASmallCopyOfTheSameStreamIsTheLast) {
  EXPECT_TIME(time(one_,
                   [&] {
                     send(one_);
                     send(one_);
                     copy(other_.at(), other_host_.at(), 8, one_);
                   }),
              2 * kToDevice + kLatency);
}

TEST_F(ClockTest, ACopyBehindAWaitBeginsAfterWhatItWaitsFor) {
  EXPECT_TIME(time(two_,
                   [&] {
                     send(one_);
                     order(one_, two_);
                     bring(two_);
                   }),
              kToDevice + kFromDevice);
}

TEST_F(ClockTest, ACopyWithinTheDeviceIsFast) {
  EXPECT_LT(time(one_, [&] { copy(block_.at(), other_.at(), kCopied, one_); }), 0.1);
}

TEST_F(ClockTest, TheHostWaitsAsLongAsWhatItWaitsForTakes) {
  const double before = spillway_emulator_now_ms();
  send(one_);
  const double queued = spillway_emulator_now_ms();
  ASSERT_EQ(cudaStreamSynchronize(one_), cudaSuccess);
  const double after = spillway_emulator_now_ms();

  EXPECT_GT(queued, before);
  EXPECT_LT(queued - before, 0.01);
  EXPECT_TIME(after - before, kToDevice);
}

TEST_F(ClockTest, AQueryStatesNotReadyUntilTheTimeHasCome) {
  cudaEvent_t event = timed_event();
  const double before = spillway_emulator_now_ms();
  send(one_);
  ASSERT_EQ(cudaEventRecord(event, one_), cudaSuccess);
  float unused = 0;
  EXPECT_EQ(cudaEventElapsedTime(&unused, event, event), cudaErrorNotReady);

  while (cudaEventQuery(event) == cudaErrorNotReady) {
  }

  EXPECT_TIME(spillway_emulator_now_ms() - before, kToDevice);
  EXPECT_EQ(block_.at()[kCopied - 1], 1);
}

TEST_F(ClockTest, TheDeviceIsBusyForAsLongAsItsWorkTakes) {
  double before[7];
  for (int work = 0; work < 7; ++work)
    before[work] = spillway_emulator_busy_ms(0, work);
  spillway_emulator_cost(one_, 4'000'000'000, 0, 0, 0);  // the device's rates: 4 TB/s, 400 TFLOP/s
  spillway_emulator_cost(one_, 1, 800e9, 0, 1);
  spillway_emulator_cost(one_, 1, 400e9, 0, 3);
  send(one_);
  send(two_);
  bring(two_);

  constexpr double kKernel = 0.002;
  const double expected[] = {
      1 + kKernel, 2 + kKernel, 0, 1 + kKernel, 2 * kToDevice, kFromDevice, 0};
  for (int work = 0; work < 7; ++work)
    EXPECT_NEAR(spillway_emulator_busy_ms(0, work) - before[work], expected[work], 1e-9) << work;
  for (const int unknown : {-1, 7})
    EXPECT_EQ(spillway_emulator_busy_ms(0, unknown), 0);
  EXPECT_EQ(spillway_emulator_busy_ms(1, 0), 0);
}

TEST_F(ClockTest, KernelsOfTwoStreamsShareTheDevice) {
  const double before[] = {spillway_emulator_busy_ms(0, 0), spillway_emulator_busy_ms(0, 1)};
  EXPECT_TIME(time(one_,
                   [&] {
                     spillway_emulator_cost(two_, 8'000'000'000, 0, 0, 1);
                     spillway_emulator_cost(one_, 4'000'000'000, 0, 0, 0);
                   }),
              3.0);
  EXPECT_NEAR(spillway_emulator_busy_ms(0, 0) - before[0], 1.002, 1e-9);
  EXPECT_NEAR(spillway_emulator_busy_ms(0, 1) - before[1], 2.002, 1e-9);
}

TEST_F(ClockTest, AKernelRunsWhileTheOneThatWasGivenFirstIsNotReady) {
  send(two_);  // takes longer than a kernel of 1 ms
  spillway_emulator_cost(two_, 8'000'000'000, 0, 0, 0);
  const double end = spillway_emulator_end_ms(0);
  EXPECT_TIME(time(one_, [&] { spillway_emulator_cost(one_, 4'000'000'000, 0, 0, 0); }), 1.0);
  EXPECT_EQ(spillway_emulator_end_ms(0), end);
}

TEST_F(ClockTest, TheEndIsThatOfTheStreamThatTakesLongest) {
  EXPECT_EQ(spillway_emulator_end_ms(0), spillway_emulator_now_ms());
  const double before = spillway_emulator_end_ms(0);
  send(one_);
  bring(two_);

  EXPECT_TIME(spillway_emulator_end_ms(0) - before, kFromDevice);
  EXPECT_LT(spillway_emulator_now_ms() - before, kLatency);
  ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  EXPECT_EQ(spillway_emulator_end_ms(0), spillway_emulator_now_ms());
}

TEST_F(ClockTest, ACollectiveRunsBesideKernelsAndCopies) {
  const double kernels = spillway_emulator_busy_ms(0, 0);
  EXPECT_TIME(time(one_,
                   [&] {
                     spillway_emulator_collective(one_, 4'000'000'000);  // at 400e9 a second
                     spillway_emulator_cost(two_, 4'000'000'000, 0, 0, 0);
                     send(two_);
                   }),
              10.0);
  EXPECT_TIME(spillway_emulator_busy_ms(0, 6), 10.0);
  EXPECT_TIME(spillway_emulator_busy_ms(0, 0) - kernels, 1.0);
}

TEST_F(ClockTest, AnOperatorTakesTheLongerOfItsBytesAndItsArithmetic) {
  EXPECT_TIME(time(one_, [&] { spillway_emulator_cost(one_, 4'000'000'000, 0, 0, 0); }), 1.0);
  EXPECT_TIME(time(one_, [&] { spillway_emulator_cost(one_, 1, 800e9, 0, 0); }), 2.0);
  EXPECT_TIME(time(one_, [&] { spillway_emulator_cost(one_, 4'000'000'000, 800e9, 0, 0); }), 2.0);
}

TEST_F(ClockTest, ComputingAndCopyingGoSideBySide) {
  EXPECT_TIME(time(one_,
                   [&] {
                     order(one_, two_);
                     send(two_);
                     spillway_emulator_cost(one_, 0, 400e9, 0, 0);
                     order(two_, one_);
                   }),
              kToDevice);
}

TEST_F(ClockTest, BranchesOfAGraphTakeTheirTimeSideBySide) {
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t executable = nullptr;
  ASSERT_EQ(cudaStreamBeginCapture(one_, cudaStreamCaptureModeGlobal), cudaSuccess);
  order(one_, two_);
  send(one_);
  bring(two_);
  order(two_, one_);
  spillway_emulator_cost(one_, 0, 800e9, 0, 0);
  ASSERT_EQ(spillway_emulator_add_node(
                one_, "operator", [](void*) {}, [](void*) {}, nullptr, nullptr, 0),
            0);
  ASSERT_EQ(cudaStreamEndCapture(one_, &graph), cudaSuccess);
  ASSERT_EQ(cudaGraphInstantiate(&executable, graph, 0), cudaSuccess);

  EXPECT_TIME(time(one_, [&] { EXPECT_EQ(cudaGraphLaunch(executable, one_), cudaSuccess); }),
              kFromDevice + 2.0);
}

TEST_F(ClockTest, TheSameCallsTakeExactlyTheSameTime) {
  const auto body = [&] {
    send(one_);
    bring(one_);
  };
  const double first = time(one_, body);

  EXPECT_EQ(time(one_, body), first);
}

}  // namespace
