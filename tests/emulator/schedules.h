// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tests/emulator/emulated.h"

#include <gtest/gtest.h>

#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

namespace emulated {

/// A test that runs its body in processes of its own, because settings are read once. It must not
/// touch the emulator before.
class UnderSchedules : public ::testing::Test {
 protected:
  /// What `body` writes to standard output under SPILLWAY_EMULATE_SCHEDULE=`schedule`. An
  /// expectation that fails in it is a failure of the test, with the schedule and its text.
  template <typename Body>
  static std::string under(const std::string& schedule, Body body) {
    int ends[2];
    if (pipe(ends) != 0) return "no pipe";
    const pid_t child = fork();
    if (child == 0) {
      dup2(ends[1], STDOUT_FILENO);
      setenv("SPILLWAY_EMULATE_SCHEDULE", schedule.c_str(), 1);
      EXPECT_EQ(cudaSetDevice(0), cudaSuccess) << spillway_emulator_error();
      body();
      std::fflush(stdout);
      _exit(HasFailure() ? 1 : 0);
    }
    close(ends[1]);
    std::string written;
    char part[4096];
    for (ssize_t got = 0; (got = read(ends[0], part, sizeof part)) > 0;)
      written.append(part, static_cast<std::size_t>(got));
    close(ends[0]);
    int status = 0;
    waitpid(child, &status, 0);
    EXPECT_EQ(status, 0) << "under SPILLWAY_EMULATE_SCHEDULE=" << schedule << ":\n" << written;
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
