// SPDX-License-Identifier: Apache-2.0
#include "tests/runtime/runtime_fixture.h"

#include <set>
#include <string>

namespace spillway {
namespace {

using RegionsTest = RuntimeTest;

TEST_F(RegionsTest, AnotherRatioForAUsedTagIsRefusedAndNamesBoth) {
  auto saved = forward(kTag, 0.5, {1_MiB});

  const Status status = runtime_->step().enter_region(kTag, Ratio::of(0.25).value());

  EXPECT_EQ(status.code(), Code::kInvalidArgument);
  EXPECT_NE(status.detail().find("0.5"), std::string::npos);
  EXPECT_NE(status.detail().find("0.25"), std::string::npos);
  EXPECT_NE(status.detail().find("activations"), std::string::npos);
  backward(std::move(saved));
}

TEST_F(RegionsTest, ARefusedRegionChangesNothing) {
  auto saved = forward(kTag, 0.5, {1_MiB});
  ASSERT_FALSE(runtime_->step().enter_region(kTag, Ratio::of(0.25).value()).ok());

  backward(std::move(saved));

  EXPECT_EQ(runtime_->stats().steps, 1U);
  EXPECT_EQ(stats_of(kTag).ratio, 0.5);
}

TEST_F(RegionsTest, AnotherRatioIsTakenInTheNextStep) {
  train(0.5, {1_MiB, 1_MiB});

  train(1.0, {1_MiB, 1_MiB});

  EXPECT_EQ(last().offloaded, 2_MiB);
}

TEST_F(RegionsTest, AnotherRatioForATagThatIsOpenIsRefused) {
  enter(kTag, 0.5);

  EXPECT_EQ(runtime_->step().enter_region(kTag, Ratio::of(1.0).value()).code(),
            Code::kInvalidArgument);

  runtime_->step().leave_region(kTag);
}

TEST_F(RegionsTest, TwoTagsHaveARatioEach) {
  const TagId other = intern_tag("other");
  auto first = forward(kTag, 0.0, {1_MiB});
  auto second = forward(other, 1.0, {1_MiB});
  backward(std::move(second));
  backward(std::move(first));

  EXPECT_EQ(last().offloaded, 0_B);
  EXPECT_EQ(stats_of(other).last.offloaded, 1_MiB);
}

TEST_F(RegionsTest, WithoutHostMemoryAStorageStaysAndIsCounted) {
  make_runtime({2_MiB, 1_KiB});

  train(1.0, {1_MiB, 1_MiB, 1_MiB});

  EXPECT_EQ(last().offloaded, 2_MiB);
  EXPECT_EQ(skip(last(), SkipReason::kNoHostMemory).storages, 1U);
  EXPECT_LE(host().registered_peak, 2_MiB);
}

TEST_F(RegionsTest, WhatCouldNotMoveLeavesItsShareToLaterStorages) {
  make_runtime({2_MiB, 1_KiB});

  train(0.5, {4_MiB, 4_MiB, 1_MiB});

  EXPECT_EQ(skip(last(), SkipReason::kNoHostMemory).bytes, 4_MiB);
  EXPECT_EQ(last().offloaded, 1_MiB);
}

TEST_F(RegionsTest, ADeviceIsMadeOnce) {
  DeviceRuntime* const made = runtime_->device(DeviceId{0}).value();

  EXPECT_EQ(runtime_->device(DeviceId{0}).value(), made);
  EXPECT_EQ(runtime_->devices().if_made(DeviceId{0}), made);
}

TEST_F(RegionsTest, ADeviceThatIsNotThereIsATypedError) {
  EXPECT_EQ(runtime_->device(DeviceId{99}).status().code(), Code::kInvalidArgument);
  EXPECT_EQ(runtime_->devices().if_made(DeviceId{99}), nullptr);
}

TEST_F(RegionsTest, EveryReasonHasANameOfItsOwn) {
  std::set<std::string_view> names;
  for (std::size_t reason = 0; reason < static_cast<std::size_t>(SkipReason::kCount); ++reason) {
    names.insert(skip_reason_name(static_cast<SkipReason>(reason)));
  }

  EXPECT_EQ(names.size(), static_cast<std::size_t>(SkipReason::kCount));
}

}  // namespace
}  // namespace spillway
