// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <spawn.h>
#include <sys/wait.h>

#include <cstdlib>
#include <string>

namespace {

/// How the program ended: "status 0", or "signal 14" for a hang.
std::string run(const char* how) {
  std::string program = EXIT_PROGRAM;
  std::string way = how;
  char* const arguments[] = {program.data(), way.data(), nullptr};
  pid_t child = 0;
  if (posix_spawn(&child, EXIT_PROGRAM, nullptr, nullptr, arguments, environ) != 0)
    return "not run";
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? "status " + std::to_string(WEXITSTATUS(status))
                           : "signal " + std::to_string(WTERMSIG(status));
}

class ExitTest : public testing::TestWithParam<const char*> {};

TEST_P(ExitTest, TheProcessEndsEachTime) {
  const char* times = std::getenv("TIMES");
  ASSERT_NE(times, nullptr) << "TIMES must be set";

  for (int i = std::atoi(times); i > 0; --i)
    ASSERT_EQ(run(GetParam()), "status 0");
}

INSTANTIATE_TEST_SUITE_P(
    Each,
    ExitTest,
    testing::Values("return", "work_left", "blocked", "threads", "quick", "other_thread", "forks"),
    [](const auto& way) { return std::string(way.param); });

}  // namespace
