// SPDX-License-Identifier: Apache-2.0
// Copies in both directions at once, of which each takes a second alone.
#include "emulator/device/clock.h"

#include <gtest/gtest.h>

namespace spillway::emulator {
namespace {

class DuplexTest : public testing::Test {
 protected:
  static Clock clock(double duplex) {
    ClockSettings settings;
    settings.is_virtual = true;
    settings.latency = 0;
    settings.host_to_device = settings.device_to_host = 1e9;
    settings.rates.duplex = duplex;
    return {settings, 1};
  }

  static double in(Clock& clock, double ready) {
    return clock.run(0, ready, {Cost::Kind::kHostToDevice, 1'000'000'000});
  }

  static double out(Clock& clock, double ready) {
    return clock.run(0, ready, {Cost::Kind::kDeviceToHost, 1'000'000'000});
  }
};

TEST_F(DuplexTest, ALinkThatIsFullBothWaysHasNoShares) {
  Clock full = clock(1);
  EXPECT_DOUBLE_EQ(out(full, 0), 1);
  EXPECT_DOUBLE_EQ(in(full, 0.25), 1.25);
}

TEST_F(DuplexTest, TheCopyThatWasGivenLaterLacksForBoth) {
  Clock both = clock(0.75);
  EXPECT_DOUBLE_EQ(out(both, 0), 1);
  // A quarter of a second alone would do; beside the other for 3/4, it loses twice a quarter of
  // them.
  EXPECT_DOUBLE_EQ(in(both, 0.25), 1.25 + 2 * 0.25 * 0.75);
}

TEST_F(DuplexTest, ACopyBeforeTheOtherIsAsFastAsAlone) {
  Clock both = clock(0.75);
  EXPECT_DOUBLE_EQ(out(both, 1), 2);
  EXPECT_DOUBLE_EQ(in(both, 0), 1);
  EXPECT_DOUBLE_EQ(in(both, 2.5), 3.5);
}

TEST_F(DuplexTest, ACopyThatEndsBesideALongerOneIsSlowToItsEnd) {
  Clock both = clock(0.75);
  EXPECT_DOUBLE_EQ(both.run(0, 0, {Cost::Kind::kDeviceToHost, 9'000'000'000}), 9);
  EXPECT_DOUBLE_EQ(in(both, 0), 2);
}

TEST_F(DuplexTest, CopiesOneAfterTheOtherBothWaysReachTheirShare) {
  constexpr int kCopies = 1000;
  Clock both = clock(0.75);
  double there = 0;
  double back = 0;
  for (int copy = 0; copy < kCopies; ++copy) {
    there = in(both, 0);
    back = out(both, 0);
  }
  EXPECT_NEAR(kCopies / there, 0.75, 0.01);
  EXPECT_NEAR(kCopies / back, 0.75, 0.01);
}

TEST_F(DuplexTest, BelowAHalfTheyGoOneAfterTheOther) {
  Clock both = clock(0.3);
  EXPECT_DOUBLE_EQ(out(both, 0), 1);
  EXPECT_DOUBLE_EQ(in(both, 0), 2);
}

}  // namespace
}  // namespace spillway::emulator
