// SPDX-License-Identifier: Apache-2.0
#include "allocator/transfer/node_ledger.h"

#include <gtest/gtest.h>

#include <fcntl.h>
#include <sched.h>
#include <sys/file.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <thread>
#include <vector>

namespace {

std::atomic<int> lock_attempts{0};

}  // namespace

/// In place of the C library's: counts the attempts.
// NOLINTNEXTLINE(readability-inconsistent-declaration-parameter-name)
extern "C" int flock(int file, int operation) {
  ++lock_attempts;
  return static_cast<int>(syscall(SYS_flock, file, operation));
}

namespace spillway {
namespace {

using namespace literals;

/// Leaves this process `count` file descriptors to open.
void leave_descriptors(int count) {
  const int first = open("/dev/null", O_RDONLY | O_CLOEXEC);
  close(first);
  const rlimit limit{static_cast<rlim_t>(first + count), static_cast<rlim_t>(first + count)};
  setrlimit(RLIMIT_NOFILE, &limit);
}

/// Mounts a file system of one page at `folder`, which this process alone sees, and fills it. False
/// where the system permits no mount.
bool mount_full_file_system(const std::filesystem::path& folder) {
  if (unshare(CLONE_NEWNS) != 0 && unshare(CLONE_NEWUSER | CLONE_NEWNS) != 0) return false;
  mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr);
  if (mount("spillway-test", folder.c_str(), "tmpfs", 0, "size=4096") != 0) return false;
  std::ofstream(folder / "filler") << std::string(4096, 'x');
  return true;
}

class NodeLedgerTest : public testing::Test {
 protected:
  void SetUp() override { std::filesystem::create_directories(folder_); }

  void TearDown() override { std::filesystem::remove_all(folder_); }

  /// Another process of this user: charges `size` and then lives until end_other().
  void other_charges(Bytes size) {
    ASSERT_EQ(pipe(ready_), 0);
    other_ = fork();
    if (other_ == 0) {
      const char done = NodeLedger(folder_).charge(size, 1_GiB).ok() ? 1 : 0;
      static_cast<void>(write(ready_[1], &done, 1));
      while (true)
        pause();
    }
    close(ready_[1]);  // so that reading ends with the other process
    char done = 0;
    ASSERT_EQ(read(ready_[0], &done, 1), 1);
    ASSERT_EQ(done, 1);
  }

  /// Whether `claim` holds in a forked child, which may change limits and mounts.
  template <typename Claim>
  static testing::AssertionResult in_child(Claim claim) {
    const pid_t child = fork();
    if (child == 0) _exit(claim() ? 0 : 1);
    int status = 0;
    const bool holds =
        waitpid(child, &status, 0) == child && WIFEXITED(status) != 0 && WEXITSTATUS(status) == 0;
    return holds ? testing::AssertionSuccess() : testing::AssertionFailure();
  }

  void end_other(bool reaped) {
    kill(other_, SIGKILL);
    siginfo_t info;
    waitid(P_PID, static_cast<id_t>(other_), &info, WEXITED | (reaped ? 0 : WNOWAIT));
  }

  void expect_distrusted() {
    EXPECT_EQ(ledger_.check().code(), Code::kInvalidArgument);
    EXPECT_EQ(ledger_.charge(1_KiB, 1_GiB).code(), Code::kInvalidArgument);
  }

  const std::filesystem::path folder_ =
      std::filesystem::path(testing::TempDir()) / ("ledger." + std::to_string(getpid()));
  NodeLedger ledger_{folder_};
  int ready_[2] = {};
  pid_t other_ = 0;
};

TEST_F(NodeLedgerTest, TheLimitIsATypedErrorThatNamesItAndNothingChanges) {
  ASSERT_TRUE(ledger_.charge(600_KiB, 1_MiB).ok());

  const Status refused = ledger_.charge(600_KiB, 1_MiB);

  EXPECT_EQ(refused.code(), Code::kOutOfHostMemory);
  EXPECT_NE(refused.detail().find(readable(600_KiB)), std::string::npos);
  EXPECT_NE(refused.detail().find("SPILLWAY_NODE_PINNED_LIMIT is " + readable(1_MiB)),
            std::string::npos);
  EXPECT_TRUE(ledger_.charge(424_KiB, 1_MiB).ok());
}

TEST_F(NodeLedgerTest, WhatIsReleasedCanBeHadAgain) {
  ASSERT_TRUE(ledger_.charge(1_MiB, 1_MiB).ok());
  ledger_.release(512_KiB);

  EXPECT_TRUE(ledger_.charge(512_KiB, 1_MiB).ok());
  EXPECT_FALSE(ledger_.charge(1_B, 1_MiB).ok());
}

TEST_F(NodeLedgerTest, WhatAnotherProcessHasCounts) {
  other_charges(768_KiB);

  EXPECT_FALSE(ledger_.charge(512_KiB, 1_MiB).ok());
  EXPECT_TRUE(ledger_.charge(256_KiB, 1_MiB).ok());
  end_other(true);
}

TEST_F(NodeLedgerTest, TheShareOfAProcessThatWasKilledIsTakenBack) {
  other_charges(1_MiB);
  end_other(true);

  EXPECT_TRUE(ledger_.charge(1_MiB, 1_MiB).ok());
}

TEST_F(NodeLedgerTest, TheShareOfAZombieProcessIsReclaimedToo) {
  other_charges(1_MiB);
  end_other(false);

  EXPECT_TRUE(ledger_.charge(1_MiB, 1_MiB).ok());
  end_other(true);
}

TEST_F(NodeLedgerTest, TheShareOfAnEarlierProcessWithTheSameNumberIsTakenBack) {
  ASSERT_TRUE(ledger_.charge(1_MiB, 1_MiB).ok());
  // The same entry, sound, but of a process that was started at another time: its last field is
  // the sum of the others, so two steps of `started` are undone by two entries of another ledger.
  const auto entries = [&] {
    std::ifstream file(ledger_.path(), std::ios::binary);
    return std::string(std::istreambuf_iterator<char>(file), {});
  }();
  std::uint64_t started = 0;
  std::uint64_t check = 0;
  entries.copy(reinterpret_cast<char*>(&started), 8, 32 + 8);
  entries.copy(reinterpret_cast<char*>(&check), 8, 32 + 24);
  constexpr std::uint64_t kOdd = 0x9e37'79b9'7f4a'7c15;
  ++started;
  check += kOdd * kOdd;
  std::fstream file(ledger_.path(), std::ios::binary | std::ios::in | std::ios::out);
  file.seekp(32 + 8).write(reinterpret_cast<const char*>(&started), 8);
  file.seekp(32 + 24).write(reinterpret_cast<const char*>(&check), 8);
  file.close();

  EXPECT_TRUE(ledger_.charge(1_MiB, 1_MiB).ok());
}

TEST_F(NodeLedgerTest, AProcessShortOfDescriptorsKeepsTheSharesOfOthersAndCountsItsOwn) {
  ASSERT_TRUE(ledger_.charge(512_KiB, 1_MiB).ok());
  for (const int descriptors : {0, 1, 2}) {
    int charged[2];
    ASSERT_EQ(pipe(charged), 0);
    const pid_t child = fork();
    if (child == 0) {
      leave_descriptors(descriptors);
      const bool above = ledger_.charge(768_KiB, 1_MiB).ok();
      const bool within = ledger_.charge(256_KiB, 1_MiB).ok();
      const char found[2] = {above ? char{1} : char{0}, within ? char{1} : char{0}};
      static_cast<void>(write(charged[1], found, 2));
      while (true)
        pause();
    }
    close(charged[1]);
    char found[2] = {};
    ASSERT_EQ(read(charged[0], found, 2), 2) << "the child has ended";

    EXPECT_EQ(found[0], 0) << descriptors << " descriptors: the limit was exceeded";
    EXPECT_EQ(found[1], descriptors == 0 ? 0 : 1) << descriptors << " descriptors";
    // 256 KiB are left if the child could charge its share.
    EXPECT_EQ(ledger_.charge(512_KiB, 1_MiB).ok(), found[1] == 0);
    if (found[1] == 0) ledger_.release(512_KiB);
    kill(child, SIGKILL);
    waitpid(child, nullptr, 0);
    close(charged[0]);
    EXPECT_TRUE(ledger_.charge(512_KiB, 1_MiB).ok()) << "the share of a killed process is kept";
    ledger_.release(512_KiB);
  }
}

TEST_F(NodeLedgerTest, AProcessWhoseFirstThreadHasEndedKeepsItsShare) {
  ASSERT_EQ(pipe(ready_), 0);
  other_ = fork();
  if (other_ == 0) {
    static_cast<void>(NodeLedger(folder_).charge(768_KiB, 1_MiB));
    std::thread([this, first = gettid()] {
      std::string state;
      while (state != "Z") {
        std::ifstream file("/proc/self/task/" + std::to_string(first) + "/stat");
        std::string line;
        std::getline(file, line);
        state = line.substr(line.rfind(')') + 2, 1);
      }
      static_cast<void>(write(ready_[1], "1", 1));
      while (true)
        pause();
    }).detach();
    syscall(SYS_exit, 0);
  }
  close(ready_[1]);
  char done = 0;
  ASSERT_EQ(read(ready_[0], &done, 1), 1);

  EXPECT_FALSE(ledger_.charge(512_KiB, 1_MiB).ok());
  end_other(true);
  EXPECT_TRUE(ledger_.charge(512_KiB, 1_MiB).ok());
}

TEST_F(NodeLedgerTest, WithoutADescriptorTheErrorNamesTheirLimit) {
  EXPECT_TRUE(in_child([&] {
    leave_descriptors(0);
    const Status status = ledger_.charge(1_KiB, 1_MiB);
    return !status.ok() && status.detail().find("ulimit -n") != std::string::npos &&
           status.detail().find("remove") == std::string::npos;
  }));
}

TEST_F(NodeLedgerTest, AFullFileSystemIsNamedInTheError) {
  if (!in_child([&] { return mount_full_file_system(folder_); })) {
    GTEST_SKIP() << "this system permits no mount";
  }
  EXPECT_TRUE(in_child([&] {
    mount_full_file_system(folder_);
    const Status status = ledger_.charge(1_KiB, 1_MiB);
    return status.code() == Code::kInvalidArgument &&
           status.detail().find("file system is full. Free space in " + folder_.string()) !=
               std::string::npos &&
           status.detail().find("remove") == std::string::npos;
  }));
}

TEST_F(NodeLedgerTest, ALockThatIsNotReleasedIsWaitedForOnce) {
  ASSERT_TRUE(ledger_.charge(1_KiB, 1_MiB).ok());
  const int file = open(ledger_.path().c_str(), O_RDWR | O_CLOEXEC);
  ASSERT_EQ(flock(file, LOCK_EX), 0);

  EXPECT_EQ(ledger_.charge(1_KiB, 1_MiB).code(), Code::kOutOfHostMemory);
  const int before = lock_attempts;
  EXPECT_EQ(ledger_.charge(1_KiB, 1_MiB).code(), Code::kOutOfHostMemory);
  EXPECT_EQ(ledger_.check().code(), Code::kOutOfHostMemory);
  ledger_.release(1_KiB);
  EXPECT_EQ(lock_attempts - before, 3) << "further calls wait too";

  close(file);
  EXPECT_TRUE(ledger_.charge(1_KiB, 1_MiB).ok());
}

TEST_F(NodeLedgerTest, ThreadsOfOneProcessShareItsEntry) {
  std::vector<std::thread> threads;
  std::atomic<int> charged{0};
  for (int each = 0; each < 4; ++each) {
    threads.emplace_back([&] {
      for (int round = 0; round < 10; ++round)
        if (ledger_.charge(1_KiB, 32_KiB).ok()) ++charged;
    });
  }
  for (std::thread& thread : threads)
    thread.join();

  EXPECT_EQ(charged.load(), 32);
}

TEST_F(NodeLedgerTest, TheFileIsForItsUserAlone) {
  ASSERT_TRUE(ledger_.charge(1_KiB, 1_MiB).ok());

  EXPECT_EQ(std::filesystem::status(ledger_.path()).permissions(),
            std::filesystem::perms::owner_read | std::filesystem::perms::owner_write);
}

TEST_F(NodeLedgerTest, WhatIsNoLedgerOfThisUserIsNotTrusted) {
  namespace fs = std::filesystem;
  const fs::path path = ledger_.path();
  const std::function<void()> spoil[] = {[&] { chmod(path.c_str(), 0644); },
                                         [&] { fs::create_hard_link(path, folder_ / "second"); },
                                         [&] {
                                           if (chown(path.c_str(), 1234, 1234) != 0)
                                             fs::resize_file(path, 1);  // root alone may do it
                                         },
                                         [&] { fs::remove(path), fs::create_directory(path); },
                                         [&] {
                                           fs::remove(path),
                                               fs::create_symlink(folder_ / "target", path);
                                         }};
  std::ofstream(folder_ / "target").flush();
  chmod((folder_ / "target").c_str(), 0600);  // a ledger that would be trusted under its own name
  for (const auto& each : spoil) {
    ASSERT_TRUE(ledger_.charge(1_KiB, 1_MiB).ok());
    each();
    expect_distrusted();
    fs::remove(path);
    fs::remove(folder_ / "second");
  }
  EXPECT_EQ(fs::file_size(folder_ / "target"), 0U);
}

TEST_F(NodeLedgerTest, AnyByteThatIsNotALedgersIsNoticed) {
  for (const std::streamoff place : {0, 24, 25, 32, 40, 48, 55, 56, 64, 32000}) {
    std::filesystem::remove(ledger_.path());
    ASSERT_TRUE(ledger_.charge(1_KiB, 1_MiB).ok());
    std::fstream file(ledger_.path(), std::ios::binary | std::ios::in | std::ios::out);
    const auto byte = static_cast<char>(file.seekg(place).get() ^ 0x55);
    file.seekp(place).put(byte);
    file.close();

    EXPECT_EQ(ledger_.charge(1_KiB, 1_MiB).code(), Code::kInvalidArgument) << "byte " << place;
  }
}

TEST_F(NodeLedgerTest, AFileOfAnotherSizeIsNotTrusted) {
  for (const std::uintmax_t size : {1U, 32U, 32767U, 32769U, 1U << 20U}) {
    ASSERT_TRUE(std::ofstream(ledger_.path()).good());
    chmod(ledger_.path().c_str(), 0600);
    std::filesystem::resize_file(ledger_.path(), size);

    expect_distrusted();
  }
}

TEST_F(NodeLedgerTest, AFileThatWasLeftUnfinishedIsFinished) {
  ASSERT_TRUE(std::ofstream(ledger_.path()).good());
  chmod(ledger_.path().c_str(), 0600);
  std::filesystem::resize_file(ledger_.path(), 32768);

  EXPECT_TRUE(ledger_.charge(1_KiB, 1_MiB).ok());
}

}  // namespace
}  // namespace spillway
