// SPDX-License-Identifier: Apache-2.0
#include "allocator/runtime/runtime.h"

#include <gtest/gtest.h>

#include <spillway/spillway.h>

#include <cstddef>
#include <string>

extern "C" int statistics_from_c(spillway_device_stats* stats);

namespace spillway {
namespace {

using namespace literals;

TEST(StatisticsTest, TheLibraryKnowsItsVersion) {
  EXPECT_EQ(spillway_abi_version(), SPILLWAY_ABI_VERSION);
}

TEST(StatisticsTest, TheStatisticsOfADeviceAreThoseOfItsStages) {
  DeviceRuntime& device = *Runtime::instance().device(DeviceId{0}).value();
  const driver::Stream stream{CUstream{nullptr}};
  const auto block = device.heap().allocate(3_MiB, stream, TagId::kUntagged).value();
  Stash stash = device.residency().stash(block, 3_MiB, stream).value();
  spillway_device_stats stats{};

  ASSERT_EQ(statistics_from_c(&stats), SPILLWAY_OK) << spillway_last_error();

  EXPECT_EQ(stats.allocated_bytes, (3_MiB).count());
  EXPECT_EQ(stats.requested_bytes, (3_MiB).count());
  EXPECT_EQ(stats.allocated_blocks, 1U);
  EXPECT_GE(stats.reserved_bytes, stats.allocated_bytes);
  EXPECT_EQ(stats.offloaded_bytes, (3_MiB).count());
  EXPECT_EQ(stats.stashed_bytes, (3_MiB).count());
  EXPECT_EQ(stats.in_slots_bytes, (3_MiB).count());
  EXPECT_GE(stats.pinned_bytes, stats.in_slots_bytes);
  stash = {};
  device.heap().free(block);
}

TEST(StatisticsTest, AStructureOfAnotherSizeIsRefusedAndStaysAsItIs) {
  spillway_device_stats stats{};
  stats.struct_size = 8;
  stats.reserved_bytes = 77;

  EXPECT_EQ(spillway_device_statistics(0, &stats), SPILLWAY_INVALID_ARGUMENT);

  EXPECT_EQ(stats.reserved_bytes, 77U);
  EXPECT_NE(std::string(spillway_last_error()).find("struct_size"), std::string::npos);
}

TEST(StatisticsTest, AStructureOfTheFirstVersionGetsWhatItHasAndNoMore) {
  spillway_device_stats stats{};
  stats.struct_size = offsetof(spillway_device_stats, requested_bytes);
  stats.requested_bytes = 77;
  stats.reserved_bytes = 77;

  ASSERT_EQ(spillway_device_statistics(0, &stats), SPILLWAY_OK) << spillway_last_error();

  EXPECT_NE(stats.reserved_bytes, 77U);
  EXPECT_EQ(stats.requested_bytes, 77U);
}

TEST(StatisticsTest, ANullStructureIsRefused) {
  EXPECT_EQ(spillway_device_statistics(0, nullptr), SPILLWAY_INVALID_ARGUMENT);
}

TEST(StatisticsTest, ADeviceThatIsNotThereIsRefusedWithTheNumberOfThose) {
  spillway_device_stats stats{};
  stats.struct_size = sizeof stats;

  EXPECT_EQ(spillway_device_statistics(99, &stats), SPILLWAY_INVALID_ARGUMENT);
  EXPECT_NE(std::string(spillway_last_error()).find("one of the 1 devices"), std::string::npos)
      << spillway_last_error();
}

TEST(StatisticsTest, AStepCanBeEnded) {
  Runtime& runtime = Runtime::instance();
  ASSERT_TRUE(runtime.device(DeviceId{0}).ok());
  ASSERT_TRUE(runtime.step().enter_region(TagId::kUntagged, Ratio::of(1.0).value()).ok());
  runtime.step().decide(TagId::kUntagged, DeviceId{0}, 1_KiB);
  const std::uint64_t steps = runtime.stats().steps;

  EXPECT_EQ(spillway_step_end(), SPILLWAY_OK);

  EXPECT_EQ(runtime.stats().steps, steps + 1);
  runtime.step().leave_region(TagId::kUntagged);
}

}  // namespace
}  // namespace spillway
