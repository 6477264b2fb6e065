// SPDX-License-Identifier: Apache-2.0
#include "allocator/runtime/runtime.h"
#include "allocator/tag/tag.h"
#include "emulator/emulator.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

namespace spillway {
namespace {

using namespace literals;

/// A block under the same tag on each of two devices.
class RuntimePauseTest : public testing::Test {
 protected:
  void SetUp() override {
    for (const DeviceId id : {DeviceId{0}, DeviceId{1}}) {
      DeviceRuntime* const device = runtime_.device(id).value();
      devices_.push_back(device);
      const TagScope scope(tag_);
      blocks_.push_back(device->allocate(kSize, kStream).value());
    }
  }

  void TearDown() override {
    spillway_emulator_fault(nullptr);
    for (std::size_t each = 0; each < devices_.size(); ++each)
      devices_[each]->free(blocks_[each]);
  }

  [[nodiscard]] std::vector<Bytes> paused() const {
    std::vector<Bytes> bytes;
    for (DeviceRuntime* const device : devices_)
      bytes.push_back(device->pauses().stats().paused);
    return bytes;
  }

  static constexpr Bytes kSize = 8_MiB;
  static constexpr driver::Stream kStream{CUstream{nullptr}};
  const TagId tag_ = intern_tag("optimizer/state");
  Runtime runtime_{RuntimeOptions{}};
  std::vector<DeviceRuntime*> devices_;
  std::vector<driver::DevicePtr> blocks_;
};

TEST_F(RuntimePauseTest, AllDevicesArePausedAndResumed) {
  const Result<PauseResult> result = runtime_.pauses().pause({{"optimizer"}});
  ASSERT_TRUE(result.ok()) << result.status().message();

  EXPECT_EQ(result.value().blocks, 2U);
  EXPECT_EQ(result.value().released, kSize + kSize);
  EXPECT_EQ(paused(), (std::vector{kSize, kSize}));
  EXPECT_TRUE(runtime_.pauses().resume({"optimizer"}).ok());
  EXPECT_EQ(paused(), (std::vector{0_B, 0_B}));
}

TEST_F(RuntimePauseTest, WhereOneDeviceCannotBePausedNoneIs) {
  ASSERT_EQ(spillway_emulator_fault("cuMemcpyDtoHAsync:2=1"), nullptr);

  EXPECT_EQ(runtime_.pauses().pause({{"optimizer"}}).status().code(), Code::kDriver);

  EXPECT_EQ(paused(), (std::vector{0_B, 0_B}));
  EXPECT_EQ(devices_[0]->arena().stats().in_slots, 0_B);
}

TEST_F(RuntimePauseTest, WhereOneDeviceCannotBeResumedNoneIs) {
  ASSERT_TRUE(runtime_.pauses().pause({{"optimizer"}}).ok());
  const Bytes reserved = devices_[0]->heap().stats().reserved;
  ASSERT_EQ(spillway_emulator_fault("cuMemcpyHtoDAsync:2=1"), nullptr);

  EXPECT_EQ(runtime_.pauses().resume({"optimizer"}).status().code(), Code::kDriver);

  EXPECT_EQ(paused(), (std::vector{kSize, kSize}));
  EXPECT_EQ(devices_[0]->heap().stats().reserved, reserved);
  EXPECT_TRUE(runtime_.pauses().resume({"optimizer"}).ok());
}

TEST_F(RuntimePauseTest, OneOfTwoRequestsThatFailsTakesTheOtherBack) {
  const TagScope scope(intern_tag("cache"));
  const auto cache = devices_[0]->allocate(kSize, kStream).value();
  ASSERT_EQ(spillway_emulator_fault("cuMemcpyDtoHAsync:1=1"), nullptr);

  const auto result =
      runtime_.pauses().pause({{"cache", Contents::kDiscarded}, {"optimizer", Contents::kKept}});

  EXPECT_EQ(result.status().code(), Code::kDriver);
  EXPECT_EQ(paused(), (std::vector{0_B, 0_B}));
  devices_[0]->free(cache);
}

TEST_F(RuntimePauseTest, UnknownAndPausedTagsAreReported) {
  EXPECT_EQ(runtime_.pauses().pause({{"unused"}}).status().code(), Code::kInvalidArgument);
  EXPECT_EQ(runtime_.pauses().resume({"optimizer"}).status().code(), Code::kNotReady);
  ASSERT_TRUE(runtime_.pauses().pause({{"optimizer/*"}}).ok());
  EXPECT_EQ(runtime_.pauses().pause({{"optimizer"}}).status().code(), Code::kNotReady);
  EXPECT_TRUE(runtime_.pauses().resume({"**/state"}).ok());
}

TEST_F(RuntimePauseTest, AnAllocationThatNothingCanMakeRoomForPausesNothing) {
  ASSERT_TRUE(runtime_.pauses().evictable().allow("optimizer").ok());

  EXPECT_EQ(devices_[0]->allocate(1_GiB, kStream).status().code(), Code::kOutOfDeviceMemory);

  EXPECT_EQ(paused(), (std::vector{0_B, 0_B}));
}

TEST_F(RuntimePauseTest, WithoutHostMemoryAnAllocationFailsAndPausesNothing) {
  ASSERT_TRUE(runtime_.pauses().evictable().allow("optimizer").ok());
  ASSERT_EQ(spillway_emulator_fault("cuMemHostRegister:1+=out_of_memory"), nullptr);

  const auto large = devices_[0]->allocate(124_MiB, kStream);

  EXPECT_EQ(large.status().code(), Code::kOutOfDeviceMemory);
  EXPECT_EQ(paused(), (std::vector{0_B, 0_B}));
}

TEST_F(RuntimePauseTest, ASizeNearTheEndOfNumbersIsOutOfMemoryAndPausesNothing) {
  ASSERT_TRUE(runtime_.pauses().evictable().allow("optimizer").ok());

  const auto huge = devices_[0]->allocate(Bytes{~0ULL - 1}, kStream);

  EXPECT_EQ(huge.status().code(), Code::kOutOfDeviceMemory);
  EXPECT_EQ(paused(), (std::vector{0_B, 0_B}));
}

TEST_F(RuntimePauseTest, WhatWasPausedNeedlesslyIsFetched) {
  ASSERT_TRUE(runtime_.pauses().evictable().allow("optimizer").ok());
  devices_[0]->heap().limits().set_limit(kSize + kSize);
  // The chunks of what is paused stay.
  ASSERT_EQ(spillway_emulator_fault("cuMemUnmap:1+=1"), nullptr);

  const auto refused = devices_[0]->allocate(kSize + 4_MiB, kStream);

  EXPECT_EQ(refused.status().code(), Code::kOutOfDeviceMemory);
  EXPECT_EQ(devices_[0]->pauses().stats().copied_in, kSize);
  EXPECT_EQ(paused(), (std::vector{0_B, 0_B}));
}

TEST_F(RuntimePauseTest, AResumeMakesNoRoomWithMemoryUnderItsOwnTag) {
  ASSERT_TRUE(runtime_.pauses().evictable().allow("optimizer").ok());
  ASSERT_TRUE(runtime_.pauses().pause({{"optimizer"}}).ok());
  devices_[0]->heap().limits().set_limit(kSize);
  const TagScope scope(tag_);
  const auto later = devices_[0]->allocate(kSize, kStream).value();

  EXPECT_EQ(runtime_.pauses().resume({"optimizer"}).status().code(), Code::kOutOfDeviceMemory);

  EXPECT_FALSE(devices_[0]->heap().find(later).evicted);
  EXPECT_EQ(paused(), (std::vector{kSize, kSize}));
  devices_[0]->free(later);
}

TEST_F(RuntimePauseTest, AResumeMakesRoomWithMemoryUnderAnotherTag) {
  ASSERT_TRUE(runtime_.pauses().evictable().allow("cache").ok());
  ASSERT_TRUE(runtime_.pauses().pause({{"optimizer"}}).ok());
  devices_[0]->heap().limits().set_limit(kSize);
  const TagScope scope(intern_tag("cache"));
  const auto cache = devices_[0]->allocate(kSize, kStream).value();

  EXPECT_TRUE(runtime_.pauses().resume({"optimizer"}).ok());

  EXPECT_TRUE(devices_[0]->heap().find(cache).evicted);
  EXPECT_FALSE(devices_[0]->heap().find(blocks_[0]).evicted);
  devices_[0]->free(cache);
}

}  // namespace
}  // namespace spillway
