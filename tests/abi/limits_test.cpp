// SPDX-License-Identifier: Apache-2.0
#include "allocator/runtime/runtime.h"

#include <gtest/gtest.h>

#include <spillway/spillway.h>

#include <string>

namespace spillway {
namespace {

constexpr std::uint64_t kMiB = 1U << 20U;
constexpr std::uint64_t kDevice = 256 * kMiB;

class LimitsTest : public testing::Test {
 protected:
  void TearDown() override {
    for (void* const block : {first_, second_})
      EXPECT_EQ(spillway_release(block), SPILLWAY_OK);
    for (const int kind : {SPILLWAY_LIMIT_HARD, SPILLWAY_LIMIT_SOFT})
      EXPECT_EQ(spillway_set_limit(0, kind, SPILLWAY_NO_LIMIT), SPILLWAY_OK);
    Runtime::instance().device(DeviceId{0}).value()->heap().trim_sync();
  }

  static std::uint64_t reserved() {
    spillway_device_stats stats{};
    stats.struct_size = sizeof stats;
    EXPECT_EQ(spillway_device_statistics(0, &stats), SPILLWAY_OK);
    return stats.reserved_bytes;
  }

  void* first_ = nullptr;
  void* second_ = nullptr;
};

TEST_F(LimitsTest, BeyondTheHardLimitMemoryIsOutAndTheTextStatesWhoHoldsIt) {
  ASSERT_EQ(spillway_set_limit(0, SPILLWAY_LIMIT_HARD, 8 * kMiB), SPILLWAY_OK);
  ASSERT_EQ(spillway_tag_push("first"), SPILLWAY_OK);
  ASSERT_EQ(spillway_allocate(0, 6 * kMiB, nullptr, &first_), SPILLWAY_OK);
  ASSERT_EQ(spillway_tag_pop(), SPILLWAY_OK);

  EXPECT_EQ(spillway_allocate(0, 4 * kMiB, nullptr, &second_), SPILLWAY_OUT_OF_DEVICE_MEMORY);
  const std::string text = spillway_last_error();
  EXPECT_NE(text.find("limit 8.00 MiB"), std::string::npos) << text;
  EXPECT_NE(text.find("first 6.00 MiB"), std::string::npos) << text;
  EXPECT_EQ(spillway_allocate(0, 2 * kMiB, nullptr, &second_), SPILLWAY_OK);
}

TEST_F(LimitsTest, BeyondTheHardLimitWhatMayBePausedIs) {
  ASSERT_EQ(spillway_set_limit(0, SPILLWAY_LIMIT_HARD, 8 * kMiB), SPILLWAY_OK);
  ASSERT_EQ(spillway_tag_push("offloadable"), SPILLWAY_OK);
  ASSERT_EQ(spillway_allocate(0, 6 * kMiB, nullptr, &first_), SPILLWAY_OK);
  ASSERT_EQ(spillway_tag_pop(), SPILLWAY_OK);
  ASSERT_EQ(spillway_allow_eviction("offloadable", 1), SPILLWAY_OK);

  EXPECT_EQ(spillway_allocate(0, 4 * kMiB, nullptr, &second_), SPILLWAY_OK);
  EXPECT_EQ(reserved(), 4 * kMiB);
  EXPECT_EQ(spillway_allow_eviction("offloadable", 0), SPILLWAY_OK);
}

TEST_F(LimitsTest, ALimitBelowWhatIsHeldGivesCachedMemoryBackAndTakesNothingThatLives) {
  ASSERT_EQ(spillway_allocate(0, 6 * kMiB, nullptr, &first_), SPILLWAY_OK);
  void* cached = nullptr;
  ASSERT_EQ(spillway_allocate(0, 16 * kMiB, nullptr, &cached), SPILLWAY_OK);
  ASSERT_EQ(spillway_release(cached), SPILLWAY_OK);

  ASSERT_EQ(spillway_set_limit(0, SPILLWAY_LIMIT_HARD, 4 * kMiB), SPILLWAY_OK);

  EXPECT_EQ(reserved(), 6 * kMiB);
  EXPECT_EQ(spillway_use(first_, nullptr), SPILLWAY_OK);
}

TEST_F(LimitsTest, BeyondTheSoftLimitCachedMemoryGoesBackAndTheHeapGrows) {
  ASSERT_EQ(spillway_allocate(0, 4 * kMiB, nullptr, &first_), SPILLWAY_OK);
  ASSERT_EQ(spillway_set_limit(0, SPILLWAY_LIMIT_SOFT, 8 * kMiB), SPILLWAY_OK);
  ASSERT_EQ(spillway_release(first_), SPILLWAY_OK);
  first_ = nullptr;

  ASSERT_EQ(spillway_allocate(0, 16 * kMiB, nullptr, &second_), SPILLWAY_OK);

  EXPECT_EQ(reserved(), 16 * kMiB);
}

TEST_F(LimitsTest, WhatIsNoLimitIsRefusedWithTheRange) {
  EXPECT_EQ(spillway_set_limit(0, SPILLWAY_LIMIT_HARD, 0), SPILLWAY_INVALID_ARGUMENT);
  EXPECT_EQ(spillway_set_limit(0, 2, kMiB), SPILLWAY_INVALID_ARGUMENT);
  EXPECT_EQ(spillway_set_limit(7, SPILLWAY_LIMIT_HARD, kMiB), SPILLWAY_INVALID_ARGUMENT);
  EXPECT_EQ(spillway_set_limit(0, SPILLWAY_LIMIT_HARD, kDevice + 1), SPILLWAY_INVALID_ARGUMENT);
  EXPECT_NE(std::string(spillway_last_error()).find(std::to_string(kDevice)), std::string::npos)
      << spillway_last_error();
  EXPECT_EQ(Runtime::instance().device(DeviceId{0}).value()->heap().limits().limit(), Bytes{});
}

TEST_F(LimitsTest, OfTheFractionAndTheLimitTheSmallerCounts) {
  using Limit = DeviceLimits::Limit;
  DeviceRuntime& device = *Runtime::instance().device(DeviceId{0}).value();
  ASSERT_TRUE(device.limits().set(Limit::kFraction, Bytes{8 * kMiB}).ok());
  ASSERT_TRUE(device.limits().set(Limit::kAbsolute, Bytes{16 * kMiB}).ok());
  EXPECT_EQ(device.heap().limits().limit(), Bytes{8 * kMiB});

  ASSERT_TRUE(device.limits().set(Limit::kFraction, Bytes{}).ok());
  EXPECT_EQ(device.heap().limits().limit(), Bytes{16 * kMiB});
  EXPECT_EQ(device.limits().of(Limit::kFraction), Bytes{});
  EXPECT_EQ(device.limits().of(Limit::kAbsolute), Bytes{16 * kMiB});
}

}  // namespace
}  // namespace spillway
