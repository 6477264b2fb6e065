// SPDX-License-Identifier: Apache-2.0
// Processes whose environment is unusual: closed standard streams, a limited address space. Each is
// a child that was forked before anything used the device.
#include "allocator/runtime/run_log.h"
#include "allocator/runtime/runtime.h"

#include <gtest/gtest.h>

#include <fcntl.h>
#include <spillway/spillway.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <string>

namespace spillway {
namespace {

template <typename Claim>
int status_of_child(Claim claim) {
  const pid_t child = fork();
  if (child == 0) _exit(claim());
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) != 0 ? WEXITSTATUS(status) : -1;
}

/// Opens every file that stays open: the emulated device's memory, a trace, a run log and a
/// statistics page, and memory that is shared.
bool open_all_files(const std::string& folder) {
  RunLog::Options options;
  options.log = folder + "/log";
  options.page = folder + "/page";
  void* block = nullptr;
  if (!RunLog::instance().start(options).ok()) return false;
  if (spillway_allocate(0, 1U << 21U, nullptr, &block) != SPILLWAY_OK) return false;
  if (spillway_trace_begin(0, (folder + "/trace").c_str()) != SPILLWAY_OK) return false;
  const auto device = Runtime::instance().device(DeviceId{0});
  return device.ok() && device.value()->exports().share(driver::DevicePtr(block)).ok();
}

TEST(EnvironmentTest, NoFileOfOursTakesTheNumberOfAClosedStandardStream) {
  const auto folder =
      std::filesystem::path(testing::TempDir()) / ("spillway_closed_" + std::to_string(getpid()));
  for (int closed = 1; closed < 8; ++closed) {
    std::filesystem::create_directories(folder);
    EXPECT_EQ(status_of_child([&] {
                for (int stream = 0; stream < 3; ++stream)
                  if ((closed >> stream & 1) != 0) ::close(stream);
                if (!open_all_files(folder)) return 100;
                for (int stream = 0; stream < 3; ++stream)
                  if ((closed >> stream & 1) != 0 && fcntl(stream, F_GETFD) >= 0) return 1 + stream;
                return 0;
              }),
              0)
        << "closed streams: bits of " << closed;
    std::filesystem::remove_all(folder);
  }
}

TEST(EnvironmentTest, ALimitedAddressSpaceIsNamedInTheError) {
#ifdef __SANITIZE_ADDRESS__
  GTEST_SKIP() << "the sanitizer needs addresses of its own";
#endif
  EXPECT_EQ(status_of_child([] {
              const rlimit limit{1U << 30U, 1U << 30U};
              setrlimit(RLIMIT_AS, &limit);
              void* block = nullptr;
              const int code = spillway_allocate(0, 1U << 21U, nullptr, &block);
              const std::string text = spillway_last_error();
              const bool named = text.find("ulimit -v") != std::string::npos &&
                                 text.find("1.00 GiB") != std::string::npos;
              return code == SPILLWAY_OUT_OF_HOST_MEMORY && named ? 0 : 1 + code;
            }),
            0);
}

}  // namespace
}  // namespace spillway
