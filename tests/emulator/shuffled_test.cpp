// SPDX-License-Identifier: Apache-2.0
// Shuffled schedules: between eager and late, the same for the same seed, never against CUDA's
// order.
#include "tests/emulator/schedules.h"

#include <set>

namespace {

using namespace emulated;

class ShuffledTest : public emulated::UnderSchedules {};

/// Queues copies on three streams and writes after each call how many have happened.
void write_progress() {
  const LockedBytes source(kBytes, 1);
  const DeviceBytes targets(30);
  EXPECT_EQ(cudaMemset(targets.at(), 0, 30), cudaSuccess);
  EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  const std::vector<cudaStream_t> streams{make_stream(), make_stream(), make_stream()};
  for (std::size_t i = 0; i < 30; ++i) {
    copy(targets.at() + i, source.at(), 1, streams[i % 3]);
    for (std::size_t k = 0; k < 30; ++k)
      std::putchar(targets.at()[k] == 0 ? '.' : 'x');
  }
  EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
}

/// Writes whether a copy that nothing waited for had arrived.
void write_without_wait() {
  const LockedBytes source(kBytes, 5);
  const LockedBytes target(kBytes, 0);
  const DeviceBytes block(kBytes);
  cudaStream_t in = make_stream();
  cudaStream_t out = make_stream();
  copy(block.at(), source.at(), kBytes, in);
  copy(target.at(), block.at(), kBytes, out);
  EXPECT_EQ(cudaStreamSynchronize(out), cudaSuccess);
  std::putchar(target.at()[0] == 5 ? 'x' : '.');
}

TEST_F(ShuffledTest, OneSeedIsOneOutcome) {
  EXPECT_EQ(under("shuffled:7", write_progress), under("shuffled:7", write_progress));
}

TEST_F(ShuffledTest, SeedsDifferAndAreNeitherEagerNorLate) {
  std::set<std::string> outcomes{under("eager", write_progress), under("late", write_progress)};
  for (int seed = 1; seed <= 6; ++seed)
    outcomes.insert(under("shuffled:" + std::to_string(seed), write_progress));

  EXPECT_EQ(outcomes.size(), 8U);
}

/// Writes which of two streams, each with one copy, was first.
void write_first() {
  const LockedBytes source(kBytes, 1);
  const DeviceBytes targets(2);
  EXPECT_EQ(cudaMemset(targets.at(), 0, 2), cudaSuccess);
  EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  cudaStream_t one = make_stream();
  cudaStream_t other = make_stream();
  copy(targets.at(), source.at(), 1, one);
  copy(targets.at() + 1, source.at(), 1, other);
  std::putchar(targets.at()[0] < targets.at()[1] ? 'x' : '.');
  EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
}

TEST_F(ShuffledTest, AStreamThatIsGivenItsWorkLaterMayBeFirst) {
  std::string first;
  for (int seed = 1; seed <= 24; ++seed)
    first += under("shuffled:" + std::to_string(seed), write_first);

  EXPECT_NE(first.find('x'), std::string::npos) << first;
}

TEST_F(ShuffledTest, AForgottenWaitShowsUnderSomeSeedsAndNotUnderOthers) {
  std::set<std::string> outcomes;
  for (int seed = 1; seed <= 12; ++seed)
    outcomes.insert(under("shuffled:" + std::to_string(seed), write_without_wait));

  EXPECT_EQ(outcomes, (std::set<std::string>{".", "x"}));
}

TEST_F(ShuffledTest, AnEventOrdersTwoStreamsUnderEverySchedule) {
  under_all([] {
    const LockedBytes source(kBytes, 5);
    const LockedBytes target(kBytes, 0);
    const DeviceBytes block(kBytes);
    cudaStream_t in = make_stream();
    cudaStream_t out = make_stream();
    for (char round = 1; round <= 10; ++round) {
      std::memset(source.at(), round, kBytes);
      copy(block.at(), source.at(), kBytes, in);
      order(in, out);
      copy(target.at(), block.at(), kBytes, out);
      order(out, in);
      EXPECT_EQ(cudaStreamSynchronize(out), cudaSuccess);
      EXPECT_EQ(target.at()[0], round);
    }
  });
}

TEST_F(ShuffledTest, TheDefaultStreamComesAfterBlockingStreamsUnderEverySchedule) {
  under_all([] {
    const LockedBytes source(kBytes, 6);
    const LockedBytes target(kBytes, 0);
    const DeviceBytes block(kBytes);
    cudaStream_t blocking = nullptr;
    EXPECT_EQ(cudaStreamCreate(&blocking), cudaSuccess);
    copy(block.at(), source.at(), kBytes, blocking);
    copy(target.at(), block.at(), kBytes, nullptr);
    EXPECT_EQ(cudaStreamSynchronize(nullptr), cudaSuccess);
    EXPECT_EQ(target.at()[0], 6);
  });
}

TEST_F(ShuffledTest, PollingEndsUnderEverySchedule) {
  under_all([] {
    const LockedBytes source(kBytes, 3);
    const DeviceBytes block(kBytes);
    cudaStream_t stream = make_stream();
    cudaEvent_t event = make_event();
    copy(block.at(), source.at(), kBytes, stream);
    EXPECT_EQ(cudaEventRecord(event, stream), cudaSuccess);
    while (cudaEventQuery(event) == cudaErrorNotReady) {
    }
    EXPECT_EQ(block.at()[0], 3);
  });
}

}  // namespace
