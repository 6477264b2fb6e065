// SPDX-License-Identifier: Apache-2.0
#include "allocator/transfer/host_room.h"

#include <gtest/gtest.h>

#include <unistd.h>

#include <filesystem>
#include <fstream>

namespace spillway {
namespace {

using namespace literals;

/// A root directory with a machine of 16 GiB in it, 8 GiB of them free.
class HostRoomTest : public testing::Test {
 protected:
  void SetUp() override {
    write("proc/meminfo", "MemTotal: 16777216 kB\nMemFree: 1 kB\nMemAvailable: 8388608 kB\n");
  }

  void TearDown() override { std::filesystem::remove_all(root_); }

  void write(const std::string& path, const std::string& text) {
    const auto whole = root_ / path;
    std::filesystem::create_directories(whole.parent_path());
    std::ofstream(whole) << text;
  }

  void group(const std::string& folder, Bytes limit, Bytes used) {
    write(folder + "/memory.max", std::to_string(limit.count()) + "\n");
    write(folder + "/memory.high", "max\n");
    write(folder + "/memory.current", std::to_string(used.count()) + "\n");
  }

  void first_version_group(const std::string& folder, Bytes limit, Bytes used) {
    write(folder + "/memory.limit_in_bytes", std::to_string(limit.count()) + "\n");
    write(folder + "/memory.usage_in_bytes", std::to_string(used.count()) + "\n");
  }

  HostRoom room() { return host_room(root_); }

  const std::filesystem::path root_ =
      std::filesystem::path(testing::TempDir()) / ("room." + std::to_string(getpid()));
};

TEST_F(HostRoomTest, OfAMachineASixteenthStaysButAtMostAGibibyte) {
  EXPECT_EQ(room().most, 16_GiB);
  EXPECT_EQ(room().left, 7_GiB);
}

TEST_F(HostRoomTest, WithoutAnyDescriptionNothingIsLimited) {
  EXPECT_GT(host_room(root_ / "nowhere").left, kNoMachineHasThis);
}

TEST_F(HostRoomTest, TheGroupOfTheProcessLimitsIt) {
  write("proc/self/cgroup", "0::/job\n");
  group("sys/fs/cgroup/job", 4_GiB, 1_GiB);

  EXPECT_EQ(room().most, 4_GiB);
  EXPECT_EQ(room().left, 3_GiB - 256_MiB);
  EXPECT_EQ(room().machine, 16_GiB);
}

TEST_F(HostRoomTest, AGroupAroundItLimitsItToo) {
  write("proc/self/cgroup", "0::/jobs/one\n");
  group("sys/fs/cgroup/jobs/one", 8_GiB, 0_B);
  group("sys/fs/cgroup/jobs", 2_GiB, 1_GiB);

  EXPECT_EQ(room().left, 1_GiB - 128_MiB);
}

TEST_F(HostRoomTest, TheSofterOfTwoLimitsCountsWhereItIsLess) {
  write("proc/self/cgroup", "0::/job\n");
  group("sys/fs/cgroup/job", 4_GiB, 0_B);
  write("sys/fs/cgroup/job/memory.high", "1073741824\n");

  EXPECT_EQ(room().left, 1_GiB - 64_MiB);
}

TEST_F(HostRoomTest, CachesThatCanBeDroppedCountAsFree) {
  write("proc/self/cgroup", "0::/job\n");
  group("sys/fs/cgroup/job", 4_GiB, 3_GiB);
  write("sys/fs/cgroup/job/memory.stat", "anon 5\ninactive_file 2147483648\n");

  EXPECT_EQ(room().left, 3_GiB - 256_MiB);
}

TEST_F(HostRoomTest, AGroupThatIsFullLeavesNothing) {
  write("proc/self/cgroup", "0::/job\n");
  group("sys/fs/cgroup/job", 1_GiB, 2_GiB);

  EXPECT_EQ(room().left, 0_B);
}

TEST_F(HostRoomTest, AProcessThatSeesItsGroupFromWithinIsLimitedByWhatItSees) {
  write("proc/self/cgroup", "0::/../elsewhere\n");
  group("sys/fs/cgroup", 2_GiB, 0_B);

  EXPECT_EQ(room().left, 2_GiB - 128_MiB);
}

TEST_F(HostRoomTest, GroupsOfTheFirstVersionLimitIt) {
  write("proc/self/cgroup", "7:cpu:/other\n4:cpuset,memory:/job\n");
  first_version_group("sys/fs/cgroup/memory/job", 4_GiB, 1_GiB);

  EXPECT_EQ(room().left, 3_GiB - 256_MiB);
}

TEST_F(HostRoomTest, TheFirstVersionsNumberForNoLimitIsNone) {
  write("proc/self/cgroup", "4:memory:/job\n");
  first_version_group("sys/fs/cgroup/memory/job", Bytes{9223372036854771712ULL}, 1_GiB);

  EXPECT_EQ(room().most, 16_GiB);
}

}  // namespace
}  // namespace spillway
