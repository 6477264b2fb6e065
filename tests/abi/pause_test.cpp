// SPDX-License-Identifier: Apache-2.0
#include "allocator/runtime/runtime.h"

#include <gtest/gtest.h>

#include <spillway/spillway.h>

#include <optional>
#include <string>
#include <vector>

namespace spillway {
namespace {

constexpr std::uint64_t kSize = 8U << 20U;

/// A block under a tag of its own, filled by a copy that is late.
class PauseTest : public testing::Test {
 protected:
  void SetUp() override {
    current_.emplace(api(), Runtime::instance().device(DeviceId{0}).value()->device().context);
    ASSERT_EQ(spillway_tag_push("kept"), SPILLWAY_OK);
    ASSERT_EQ(spillway_allocate(0, kSize, nullptr, &block_), SPILLWAY_OK) << spillway_last_error();
    ASSERT_EQ(spillway_tag_pop(), SPILLWAY_OK);
    api().MemcpyHtoDAsync(
        driver::DevicePtr(block_).address(), written_.data(), kSize, CUstream{nullptr});
  }

  void TearDown() override { EXPECT_EQ(spillway_release(block_), SPILLWAY_OK); }

  static const driver::Api& api() {
    return *Runtime::instance().device(DeviceId{0}).value()->device().api;
  }

  std::vector<char> read() {
    std::vector<char> seen(kSize);
    const CUdeviceptr at = driver::DevicePtr(block_).address();
    EXPECT_EQ(api().MemcpyDtoHAsync(seen.data(), at, kSize, CUstream{nullptr}), CUDA_SUCCESS);
    api().StreamSynchronize(CUstream{nullptr});
    return seen;
  }

  static spillway_device_stats stats() {
    spillway_device_stats stats{};
    stats.struct_size = sizeof stats;
    EXPECT_EQ(spillway_device_statistics(0, &stats), SPILLWAY_OK);
    return stats;
  }

  const std::vector<char> written_ = std::vector<char>(kSize, 'w');
  std::optional<driver::CurrentDevice> current_;
  void* block_ = nullptr;
};

TEST_F(PauseTest, MemoryGoesAndIsFetchedWithItsContents) {
  const std::uint64_t reserved = stats().reserved_bytes;
  std::uint64_t released = 0;

  ASSERT_EQ(spillway_pause("kept", 0, &released), SPILLWAY_OK) << spillway_last_error();
  const spillway_device_stats paused = stats();
  ASSERT_EQ(spillway_resume("kept"), SPILLWAY_OK) << spillway_last_error();

  EXPECT_EQ(released, kSize);
  EXPECT_EQ(paused.reserved_bytes, reserved - kSize);
  EXPECT_EQ(paused.paused_bytes, kSize);
  EXPECT_EQ(stats().paused_bytes, 0U);
  EXPECT_TRUE(read() == written_);
}

TEST_F(PauseTest, DiscardedContentsAreNotCopied) {
  const std::uint64_t pinned = stats().in_slots_bytes;

  ASSERT_EQ(spillway_pause("kept", SPILLWAY_PAUSE_DISCARD, nullptr), SPILLWAY_OK);

  EXPECT_EQ(stats().in_slots_bytes, pinned);
  EXPECT_EQ(stats().paused_bytes, kSize);
  EXPECT_EQ(spillway_resume("kept"), SPILLWAY_OK);
}

TEST_F(PauseTest, WhatCannotBePausedOrResumedIsRefused) {
  EXPECT_EQ(spillway_pause("unused", 0, nullptr), SPILLWAY_INVALID_ARGUMENT);
  EXPECT_NE(std::string(spillway_last_error()).find("\"kept\""), std::string::npos);
  EXPECT_EQ(spillway_pause(nullptr, 0, nullptr), SPILLWAY_INVALID_ARGUMENT);
  EXPECT_EQ(spillway_pause("kept", 2, nullptr), SPILLWAY_INVALID_ARGUMENT);
  EXPECT_EQ(spillway_resume("unused"), SPILLWAY_INVALID_ARGUMENT);
  EXPECT_EQ(spillway_resume("kept"), SPILLWAY_NOT_READY);
  EXPECT_EQ(spillway_resume(nullptr), SPILLWAY_INVALID_ARGUMENT);
}

TEST_F(PauseTest, MemoryWithoutATagIsNotPaused) {
  EXPECT_EQ(spillway_pause("", 0, nullptr), SPILLWAY_INVALID_ARGUMENT);
  EXPECT_NE(std::string(spillway_last_error()).find("pattern \"\""), std::string::npos);
  EXPECT_EQ(spillway_resume(""), SPILLWAY_INVALID_ARGUMENT);
}

TEST_F(PauseTest, EvictionIsAllowedOrItIsNot) {
  EXPECT_EQ(spillway_allow_eviction("kept", 5), SPILLWAY_INVALID_ARGUMENT);
  EXPECT_EQ(spillway_allow_eviction("kept", -1), SPILLWAY_INVALID_ARGUMENT);
  EXPECT_EQ(spillway_allow_eviction("kept", 0), SPILLWAY_NOT_READY);
}

TEST_F(PauseTest, AResumeWithoutMemoryStatesWhoHoldsIt) {
  ASSERT_EQ(spillway_pause("kept", 0, nullptr), SPILLWAY_OK);
  ASSERT_EQ(spillway_tag_push("hog"), SPILLWAY_OK);
  void* large = nullptr;
  ASSERT_EQ(spillway_allocate(0, (256U << 20U) - kSize / 2, nullptr, &large), SPILLWAY_OK);
  ASSERT_EQ(spillway_tag_pop(), SPILLWAY_OK);

  EXPECT_EQ(spillway_resume("kept"), SPILLWAY_OUT_OF_DEVICE_MEMORY);
  const std::string text = spillway_last_error();
  EXPECT_NE(text.find("allocated by tag: hog"), std::string::npos) << text;
  EXPECT_NE(text.find("pausing \"hog\""), std::string::npos) << text;
  EXPECT_EQ(spillway_release(large), SPILLWAY_OK);
  EXPECT_EQ(spillway_resume("kept"), SPILLWAY_OK);
  EXPECT_TRUE(read() == written_);
}

TEST_F(PauseTest, APausedBlockMayBeReleased) {
  const std::uint64_t pinned = stats().in_slots_bytes;
  ASSERT_EQ(spillway_pause("kept", 0, nullptr), SPILLWAY_OK);

  EXPECT_EQ(spillway_release(block_), SPILLWAY_OK);

  block_ = nullptr;
  EXPECT_EQ(stats().paused_bytes, 0U);
  EXPECT_EQ(stats().in_slots_bytes, pinned);
}

TEST_F(PauseTest, WhereMemoryRunsOutWhatMayBePausedIs) {
  ASSERT_EQ(spillway_allow_eviction("kept", 1), SPILLWAY_OK);
  void* large = nullptr;

  ASSERT_EQ(spillway_allocate(0, (256U << 20U) - kSize / 2, nullptr, &large), SPILLWAY_OK)
      << spillway_last_error();

  EXPECT_EQ(stats().paused_bytes, kSize);
  EXPECT_EQ(spillway_release(large), SPILLWAY_OK);
  EXPECT_EQ(spillway_resume("kept"), SPILLWAY_OK);
  EXPECT_TRUE(read() == written_);
  EXPECT_EQ(spillway_allow_eviction("kept", 0), SPILLWAY_OK);
  EXPECT_EQ(spillway_allow_eviction("kept", 0), SPILLWAY_NOT_READY);
}

}  // namespace
}  // namespace spillway
