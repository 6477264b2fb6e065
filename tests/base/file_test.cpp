// SPDX-License-Identifier: Apache-2.0
#include "allocator/base/file.h"

#include <gtest/gtest.h>

#include <sys/resource.h>
#include <sys/wait.h>

#include <cerrno>
#include <vector>

namespace spillway {
namespace {

/// Whether `claim` holds in a forked child whose descriptors `closed` are closed.
template <typename Claim>
bool with_closed(const std::vector<int>& closed, Claim claim) {
  const pid_t child = fork();
  if (child == 0) {
    for (const int each : closed)
      ::close(each);
    _exit(claim() ? 0 : 1);
  }
  int status = 0;
  return waitpid(child, &status, 0) == child && WIFEXITED(status) != 0 && WEXITSTATUS(status) == 0;
}

bool is_open(int descriptor) {
  return fcntl(descriptor, F_GETFD) >= 0;
}

const std::vector<std::vector<int>> kClosed = {{}, {0}, {1}, {2}, {0, 2}, {1, 2}, {0, 1, 2}};

TEST(FileTest, AFileNeverTakesTheNumberOfAStandardStream) {
  for (const auto& closed : kClosed) {
    EXPECT_TRUE(with_closed(closed,
                            [&] {
                              const File first(::open("/dev/null", O_RDWR | O_CLOEXEC));
                              const File second(::open("/dev/null", O_RDWR | O_CLOEXEC));
                              bool good = first.number() > 2 && second.number() > 2 &&
                                          first.number() != second.number();
                              for (const int each : closed)
                                good = good && !is_open(each);
                              return good && (fcntl(first.number(), F_GETFD) & FD_CLOEXEC) != 0 &&
                                     ::write(first.number(), "x", 1) == 1;
                            }))
        << closed.size() << " closed";
  }
}

TEST(FileTest, WithoutAnotherNumberTheFileIsNotOpenAndErrnoIsSet) {
  EXPECT_TRUE(with_closed({1}, [] {
    const rlimit limit{3, 3};
    setrlimit(RLIMIT_NOFILE, &limit);
    errno = 0;
    const File file(::open("/dev/null", O_RDWR | O_CLOEXEC));
    // F_DUPFD returns EINVAL where the limit allows no such number at all.
    return !file.open() && (errno == EMFILE || errno == EINVAL) && !is_open(1);
  }));
}

}  // namespace
}  // namespace spillway
