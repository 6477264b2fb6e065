// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tests/emulator/emulated.h"
#include "tests/emulator/in_process.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <string>

namespace emulated {

/// A test that runs its body in processes of its own, because settings are read once. It must not
/// touch the emulator before.
class UnderSchedules : public ::testing::Test {
 protected:
  /// What `body` writes under SPILLWAY_EMULATE_SCHEDULE=`schedule`. An expectation that fails in it
  /// is a failure of the test, with the schedule and its text.
  template <typename Body>
  static std::string under(const std::string& schedule, Body body) {
    const std::string written = in_process({{"SPILLWAY_EMULATE_SCHEDULE", schedule.c_str()}}, [&] {
      EXPECT_EQ(cudaSetDevice(0), cudaSuccess) << spillway_emulator_error();
      body();
      std::fflush(stdout);
      if (HasFailure()) _exit(1);
    });
    EXPECT_FALSE(written.ends_with("status 1\n") || written.find("signal ") != std::string::npos)
        << "under SPILLWAY_EMULATE_SCHEDULE=" << schedule << ":\n"
        << written;
    return written;
  }

  /// `body` under eager, late and `seeds` shuffled schedules.
  template <typename Body>
  static void under_all(Body body, int seeds = 12) {
    under("eager", body);
    under("late", body);
    for (int seed = 1; seed <= seeds; ++seed)
      under("shuffled:" + std::to_string(seed), body);
  }
};

}  // namespace emulated
