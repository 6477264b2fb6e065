// SPDX-License-Identifier: Apache-2.0
#include "allocator/transfer/node_ledger.h"

#include <gtest/gtest.h>

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

namespace spillway {
namespace {

using namespace literals;

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
    char done = 0;
    ASSERT_EQ(read(ready_[0], &done, 1), 1);
    ASSERT_EQ(done, 1);
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
  EXPECT_NE(refused.detail().find("614400 are pinned"), std::string::npos);
  EXPECT_NE(refused.detail().find("SPILLWAY_NODE_PINNED_LIMIT is 1048576"), std::string::npos);
  EXPECT_TRUE(ledger_.charge(424_KiB, 1_MiB).ok());
}

TEST_F(NodeLedgerTest, WhatIsGivenBackCanBeHadAgain) {
  ASSERT_TRUE(ledger_.charge(1_MiB, 1_MiB).ok());
  ledger_.give_back(512_KiB);

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

TEST_F(NodeLedgerTest, TheShareOfAProcessThatNobodyHasWaitedForYetIsTakenBackToo) {
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

TEST_F(NodeLedgerTest, ThreadsOfOneProcessShareItsEntry) {
  std::vector<std::thread> threads;
  std::atomic<int> charged{0};
  for (int each = 0; each < 4; ++each) {
    threads.emplace_back([&] {
      for (int turn = 0; turn < 10; ++turn)
        if (ledger_.charge(1_KiB, 32_KiB).ok()) ++charged;
    });
  }
  for (std::thread& thread : threads)
    thread.join();

  EXPECT_EQ(charged.load(), 32);
}

TEST_F(NodeLedgerTest, TheFileIsForItsUserAlone) {
  ASSERT_TRUE(ledger_.charge(1_KiB, 1_MiB).ok());

  struct stat about {};

  ASSERT_EQ(stat(ledger_.path().c_str(), &about), 0);
  EXPECT_EQ(about.st_mode & 0777U, 0600U);
}

TEST_F(NodeLedgerTest, AFileThatOthersMayUseIsNotTrusted) {
  ASSERT_TRUE(ledger_.charge(1_KiB, 1_MiB).ok());
  chmod(ledger_.path().c_str(), 0644);

  expect_distrusted();
}

TEST_F(NodeLedgerTest, AFileOfSomebodyElseIsNotTrusted) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can give a file away";
  ASSERT_TRUE(ledger_.charge(1_KiB, 1_MiB).ok());
  ASSERT_EQ(chown(ledger_.path().c_str(), 1234, 1234), 0);

  expect_distrusted();
}

TEST_F(NodeLedgerTest, ALinkIsNotFollowed) {
  std::ofstream(folder_ / "target");
  std::filesystem::create_symlink(folder_ / "target", ledger_.path());

  expect_distrusted();
  EXPECT_EQ(std::filesystem::file_size(folder_ / "target"), 0U);
}

TEST_F(NodeLedgerTest, AFileWithASecondNameIsNotTrusted) {
  ASSERT_TRUE(ledger_.charge(1_KiB, 1_MiB).ok());
  std::filesystem::create_hard_link(ledger_.path(), folder_ / "second");

  expect_distrusted();
}

TEST_F(NodeLedgerTest, AFolderInItsPlaceIsATypedError) {
  std::filesystem::create_directory(ledger_.path());

  expect_distrusted();
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
