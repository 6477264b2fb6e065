// SPDX-License-Identifier: Apache-2.0
// What an allocation does that a budget has no room for.
#include "tests/runtime/runtime_fixture.h"

#include <optional>

namespace spillway {
namespace {

/// A device with a budget of 8 MiB, 6 of them in blocks that the reclaimer may free.
class PressureTest : public RuntimeTest {
 protected:
  void SetUp() override {
    device_ = runtime_->device(DeviceId{0}).value();
    device_->heap().placement().set_target(8_MiB);
    device_->heap().limits().set_budget(8_MiB);
    for (int block = 0; block < 3; ++block)
      reclaimable().push_back(allocate(2_MiB).value());
    DeviceRuntime::set_reclaimer(kOf, [](DeviceRuntime& device, Bytes, BlockUse) {
      if (reclaimable().empty()) return Bytes{};
      device.free(reclaimable().back());
      device.model_state().count_reclaimed(2_MiB);
      reclaimable().pop_back();
      return 2_MiB;
    });
  }

  void TearDown() override {
    DeviceRuntime::set_reclaimer(kOf, nullptr);
    for (const driver::DevicePtr at : reclaimable())
      device_->free(at);
    reclaimable().clear();
    for (const driver::DevicePtr at : allocated_)
      device_->free(at);
    RuntimeTest::TearDown();
  }

  Result<driver::DevicePtr> allocate(Bytes size) { return device_->allocate(size, kStream); }

  void keep(const Result<driver::DevicePtr>& block) {
    ASSERT_TRUE(block.ok()) << block.status().message();
    allocated_.push_back(block.value());
  }

  [[nodiscard]] Bytes reserved() const { return device_->heap().view().reserved(); }

  static std::vector<driver::DevicePtr>& reclaimable() {
    static std::vector<driver::DevicePtr> blocks;
    return blocks;
  }

  static constexpr auto kOf = DeviceRuntime::Reclaims::kSavedTensors;
  DeviceRuntime* device_ = nullptr;
  std::vector<driver::DevicePtr> allocated_;
};

TEST_F(PressureTest, NothingIsReclaimedWhereThereIsRoom) {
  keep(allocate(2_MiB));

  EXPECT_EQ(reclaimable().size(), 3U);
  EXPECT_EQ(device_->model_state().take_reclaimed(), 0_B);
}

TEST_F(PressureTest, AsMuchIsReclaimedAsTheRequestNeeds) {
  keep(allocate(4_MiB));

  EXPECT_EQ(reclaimable().size(), 2U);
  EXPECT_EQ(device_->model_state().take_reclaimed(), 2_MiB);
  EXPECT_EQ(device_->heap().stats().over_budget, 0U);
  EXPECT_EQ(reserved(), 8_MiB);
}

TEST_F(PressureTest, TheBudgetIsExceededWhereNothingIsLeftToReclaim) {
  keep(allocate(10_MiB));

  EXPECT_TRUE(reclaimable().empty());
  EXPECT_EQ(device_->heap().stats().over_budget, 1U);
  EXPECT_EQ(reserved(), 10_MiB);
}

TEST_F(PressureTest, PressureIsReportedOnce) {
  keep(allocate(2_MiB));
  EXPECT_FALSE(device_->take_pressed());

  keep(allocate(2_MiB));
  EXPECT_TRUE(device_->take_pressed());
  EXPECT_FALSE(device_->take_pressed());
}

TEST_F(PressureTest, SavedTensorsAreReclaimedBeforeModelState) {
  constexpr auto kState = DeviceRuntime::Reclaims::kModelState;
  static int asked = 0;
  asked = 0;
  DeviceRuntime::set_reclaimer(kState, [](DeviceRuntime&, Bytes, BlockUse) {
    ++asked;
    return Bytes{};
  });
  keep(allocate(6_MiB));
  EXPECT_EQ(asked, 0);

  keep(allocate(8_MiB));
  EXPECT_GT(asked, 0);
  DeviceRuntime::set_reclaimer(kState, nullptr);
}

TEST_F(PressureTest, ModelStateBeyondItsShareIsReclaimedBeforeSavedTensors) {
  constexpr auto kState = DeviceRuntime::Reclaims::kModelState;
  static std::vector<driver::DevicePtr> state;
  state = {reclaimable().back()};  // 2 of the 6 MiB
  reclaimable().pop_back();
  device_->model_state().add(device_->heap().find(state.front()));
  DeviceRuntime::set_reclaimer(kState, [](DeviceRuntime& device, Bytes, BlockUse) {
    if (state.empty()) return Bytes{};
    const ModelStateBlocks blocks;
    device.free(state.back());
    state.pop_back();
    return 2_MiB;
  });

  device_->model_state().set_share(2_MiB);
  keep(allocate(4_MiB));
  EXPECT_EQ(state.size(), 1U);
  EXPECT_EQ(reclaimable().size(), 1U);

  device_->model_state().set_share(1_MiB);
  device_->model_state().add(device_->heap().find(allocated_.back()));  // a gradient of this step
  keep(allocate(2_MiB));
  EXPECT_TRUE(state.empty());
  EXPECT_EQ(reclaimable().size(), 1U);
  DeviceRuntime::set_reclaimer(kState, nullptr);
}

TEST_F(PressureTest, WhatLeavesOfModelStatesShareIsCountedAgainstThePlan) {
  constexpr auto kState = DeviceRuntime::Reclaims::kModelState;
  DeviceRuntime::set_reclaimer(kOf, nullptr);
  DeviceRuntime::set_reclaimer(kState, [](DeviceRuntime& device, Bytes, BlockUse) {
    if (reclaimable().empty()) return Bytes{};
    device.free(reclaimable().back());
    reclaimable().pop_back();
    return 2_MiB;
  });

  device_->model_state().set_share(8_MiB);
  keep(allocate(4_MiB));
  EXPECT_EQ(device_->model_state().take_reclaimed(), 0_B);
  device_->model_state().set_share(8_MiB, true);
  ASSERT_EQ(reclaimable().size(), 2U);
  keep(allocate(2_MiB));
  EXPECT_EQ(device_->model_state().take_reclaimed(), 64_KiB);  // of 8 MiB a 128th
  DeviceRuntime::set_reclaimer(kState, nullptr);
}

TEST_F(PressureTest, ForModelStateThatStreamsModelStateLeavesFirstAndSavedTensorsLast) {
  constexpr auto kState = DeviceRuntime::Reclaims::kModelState;
  static std::vector<driver::DevicePtr> state;
  device_->heap().placement().set_streaming(true);
  const auto fetch = [&](Bytes size) {
    const ModelStateBlocks blocks;
    return allocate(size);
  };
  state = {fetch(2_MiB).value()};  // 8 MiB with the saved tensors
  DeviceRuntime::set_reclaimer(kState, [](DeviceRuntime& device, Bytes, BlockUse use) {
    EXPECT_EQ(use, BlockUse::kStreamed);
    if (state.empty()) return Bytes{};
    device.free(state.back());
    state.pop_back();
    return 2_MiB;
  });

  keep(fetch(2_MiB));  // in place of the other model state
  EXPECT_TRUE(state.empty());
  EXPECT_EQ(reclaimable().size(), 3U);

  device_->free(reclaimable().back());  // cached memory of other blocks
  reclaimable().pop_back();
  keep(fetch(2_MiB));
  EXPECT_EQ(reclaimable().size(), 2U);

  keep(fetch(4_MiB));
  EXPECT_TRUE(reclaimable().empty());
  EXPECT_EQ(device_->heap().limits().budget(), 8_MiB);
  DeviceRuntime::set_reclaimer(kState, nullptr);
}

TEST_F(PressureTest, ModelStateIsInTheCurveOfTheStepThatMadeItOnly) {
  DeviceRuntime::set_model_state_need([](DeviceRuntime&) { return ModelStateTerms{1_B}; });
  const Bytes before = device_->begin_step();
  device_->curve().begin(1, before);
  const driver::DevicePtr adopted = allocate(1_MiB).value();
  device_->model_state().add(device_->heap().find(adopted));
  EXPECT_EQ(device_->curve().peak(), before + 1_MiB);
  driver::DevicePtr born;
  {
    const ModelStateBlocks blocks;
    // Makes room, which saved tensors leave: these are not model state.
    born = allocate(2_MiB).value();
    device_->free(adopted);
  }
  EXPECT_EQ(reclaimable().size(), 2U);

  const StepCurve curve = device_->curve().end();
  const std::uint64_t begin = before.count();
  EXPECT_EQ(curve.allocated,
            (std::vector<std::uint64_t>{
                begin, begin + (1_MiB).count(), begin - (1_MiB).count(), begin - (2_MiB).count()}));
  EXPECT_EQ(curve.model_state.back(), static_cast<std::int64_t>((2_MiB).count()));
  EXPECT_EQ(device_->begin_step(), before - 2_MiB);
  DeviceRuntime::set_model_state_need(nullptr);
  EXPECT_EQ(device_->begin_step(), before);  // with 2 MiB of model state
  const ModelStateBlocks blocks;
  device_->free(born);
}

TEST_F(PressureTest, AHeldBudgetOutlivesTheStep) {
  Budget budget;
  budget.bytes = 64_MiB;
  ASSERT_TRUE(device_->budget().hold(budget).ok());
  EXPECT_EQ(device_->budget().of_job(), 64_MiB);

  device_->heap().limits().set_budget(8_MiB);
  device_->heap().placement().end_step();
  device_->heap().placement().end_step();
  EXPECT_EQ(device_->heap().limits().budget(), 64_MiB);
}

TEST_F(PressureTest, ABudgetThatWasExceededIsReturnedTo) {
  Budget budget;
  budget.bytes = 32_MiB;
  ASSERT_TRUE(device_->budget().hold(budget).ok());
  keep(allocate(30_MiB));  // 36 MiB with what can be reclaimed
  while (reserved() <= 32_MiB && reclaimable().size() < 8) {
    device_->heap().limits().exceed_budget(2_MiB);
    reclaimable().push_back(allocate(2_MiB).value());
  }
  ASSERT_GT(reserved(), 32_MiB);

  device_->return_to_job_budget();
  EXPECT_LE(reserved(), 32_MiB);
}

TEST_F(PressureTest, AnOptionalAllocationNeitherReclaimsNorExceeds) {
  const OptionalAllocation optional;

  EXPECT_EQ(allocate(4_MiB).status().code(), Code::kOutOfDeviceMemory);

  EXPECT_EQ(reclaimable().size(), 3U);
  EXPECT_EQ(reserved(), 6_MiB);
  keep(allocate(2_MiB));  // where there is room, it is one like any other
}

TEST_F(PressureTest, WhereTheDeviceHasNoMemoryWhatCanGoGoesToo) {
  ASSERT_TRUE(device_->limits().set(DeviceLimits::Limit::kAbsolute, 6_MiB).ok());
  device_->heap().limits().set_budget({});

  keep(allocate(2_MiB));

  EXPECT_EQ(reclaimable().size(), 2U);
  EXPECT_EQ(reserved(), 6_MiB);
}

}  // namespace
}  // namespace spillway
