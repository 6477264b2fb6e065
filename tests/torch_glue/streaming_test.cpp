// SPDX-License-Identifier: Apache-2.0
// Model state that streams through the device, because parameters and gradients exceed the budget.
#include "tests/torch_glue/model_state_fixture.h"

#include <cstddef>
#include <vector>

namespace spillway {
namespace {

class StreamingTest : public ModelStateTest {
 protected:
  static constexpr std::int64_t kLarge = 1 << 20;  // elements: 4 MiB
  static constexpr std::size_t kCount = 9;

  void SetUp() override {
    ModelStateTest::SetUp();
    ManagedStorages::instance().offload_all();
    Budget budget;
    budget.bytes = device().heap().limits().smallest_budget();
    ASSERT_LT(budget.bytes, Bytes{kCount * kLarge * sizeof(float)});
    ASSERT_TRUE(device().budget().hold(budget).ok());
  }

  void TearDown() override {
    all_.clear();
    ManagedStorages::instance().end_step();
    EXPECT_FALSE(device().heap().placement().streaming());
    EXPECT_TRUE(device().budget().hold({}).ok());
    ModelStateTest::TearDown();
  }

  void make() {
    while (all_.size() < kCount)
      all_.push_back(managed(static_cast<float>(all_.size()), kLarge));
  }

  /// Uses all of them, in order, in a step of that many passes.
  void step(int passes = 2) {
    for (int pass = 0; pass < passes; ++pass)
      device().begin_step();
    for (const at::Tensor& each : all_)
      static_cast<void>(each.sum());
    ManagedStorages::instance().end_step();
  }

  [[nodiscard]] std::vector<bool> resident() const {
    std::vector<bool> resident;
    for (const at::Tensor& each : all_)
      resident.push_back(of(each)->on_device());
    return resident;
  }

  /// The one that leaves for a block of that use.
  std::size_t leaves_for(BlockUse use) {
    const std::vector<bool> before = resident();
    EXPECT_FALSE(ManagedStorages::reclaim(device(), Bytes{1}, use).zero());
    const std::vector<bool> after = resident();
    std::size_t left = 0;
    while (left < before.size() && before[left] == after[left])
      ++left;
    return left;
  }

  std::vector<at::Tensor> all_;
};

TEST_F(StreamingTest, AStepWhoseModelStateFitsDoesNotStream) {
  all_.push_back(managed(0, kLarge));
  step();
  EXPECT_FALSE(device().heap().placement().streaming());
}

TEST_F(StreamingTest, AStepOfOnePassDoesNotStream) {
  make();
  step(1);
  EXPECT_FALSE(device().heap().placement().streaming());
  step(2);
  EXPECT_TRUE(device().heap().placement().streaming());
}

TEST_F(StreamingTest, WhatIsFetchedIsApartFromOtherBlocks) {
  make();
  step();
  EXPECT_TRUE(device().heap().placement().streaming());
  of(all_[0])->offload();
  static_cast<void>(all_[0].sum());
  EXPECT_TRUE(of(all_[0])->is_apart());
  EXPECT_TRUE(holds(all_[0], values(0, kLarge)));
}

TEST_F(StreamingTest, ForOtherBlocksWhatIsAmongThemLeavesFirst) {
  make();
  step();
  step();
  PlacementAdvisor placement = device().heap().placement();
  ManagedStorages::instance().offload_all();
  device().heap().trim_sync();
  static_cast<void>(all_[7].sum());
  static_cast<void>(all_[6].sum());
  placement.set_streaming(false);
  static_cast<void>(all_[2].sum());
  placement.set_streaming(true);
  static_cast<void>(all_[6].sum());
  static_cast<void>(all_[7].sum());  // the next uses of these two are the farthest now
  ASSERT_TRUE(of(all_[6])->is_apart());
  ASSERT_TRUE(of(all_[7])->is_apart());
  ASSERT_TRUE(of(all_[2])->on_device());
  ASSERT_FALSE(of(all_[2])->is_apart());

  EXPECT_EQ(leaves_for(BlockUse::kStreamed), 7U);
  EXPECT_FALSE(of(all_[leaves_for(BlockUse::kAny)])->is_apart());
}

/// Passes with a plan for the model state.
class PlannedLeaveTest : public StreamingTest {
 protected:
  /// A pass that uses each of the first `count` storages twice, one after another. Afterwards
  /// another operator begins.
  void pass(std::size_t count, const std::vector<ModelStateLeave>& plan) {
    device().begin_step();
    AllocationCurve& curve = device().curve();
    curve.begin(++step_, {});
    device().model_state().set_plan(plan);
    for (int round = 0; round < 2; ++round) {
      for (std::size_t each = 0; each < count; ++each) {
        static_cast<void>(all_[each].sum());
        if (each > 0) resident_.push_back(of(all_[each - 1])->on_device());
      }
    }
    static_cast<void>(all_.back().sum());
    curve_ = curve.end();
  }

  std::uint64_t id(std::size_t each) { return of(all_[each])->id(); }

  std::uint64_t step_ = 1000;
  std::vector<bool> resident_;  // the one before each use
  StepCurve curve_;
};

TEST_F(PlannedLeaveTest, AStorageLeavesRightAfterTheUseInThePlan) {
  make();
  pass(3, {{id(0), 1, 0}, {id(1), 2, 0}});
  EXPECT_EQ(resident_, (std::vector<bool>{false, true, true, false}));
  EXPECT_TRUE(holds(all_[0], values(0, kLarge)));
  EXPECT_TRUE(holds(all_[1], values(1, kLarge)));
}

TEST_F(PlannedLeaveTest, AfterItsLastUseItLeavesOnceAPassHasShownWhichThatIs) {
  make();
  pass(3, {{id(1), 0, 0}});
  EXPECT_EQ(resident_, (std::vector<bool>{true, true, true, true}));
  resident_.clear();
  pass(3, {{id(1), 0, 0}});
  EXPECT_EQ(resident_, (std::vector<bool>{true, true, true, false}));
}

TEST_F(PlannedLeaveTest, APassWithoutAUseDoesNotChangeWhichOneIsTheLast) {
  make();
  pass(3, {});
  pass(0, {});
  resident_.clear();
  pass(3, {{id(1), 0, 0}});
  EXPECT_EQ(resident_, (std::vector<bool>{true, true, true, false}));
}

TEST_F(PlannedLeaveTest, WithoutAPlanNothingLeaves) {
  make();
  pass(3, {});
  EXPECT_EQ(resident_, (std::vector<bool>{true, true, true, true}));
}

TEST_F(PlannedLeaveTest, ThePlanOfAPassEndsWithIt) {
  make();
  pass(3, {{id(0), 1, 0}});
  resident_.clear();
  pass(3, {});
  EXPECT_EQ(resident_, (std::vector<bool>{true, true, true, true}));
}

TEST_F(PlannedLeaveTest, AStorageThatIsUsedWhileItShouldLeaveStays) {
  make();
  device().begin_step();
  device().curve().begin(++step_, {});
  device().model_state().set_plan({{id(0), 1, 0}});
  static_cast<void>(all_[0].sum());
  {
    PinnedStorages pinned;
    pinned.add(all_[1], false);
    of(all_[0])->pin(*all_[0].storage().unsafeGetStorageImpl(), current_stream(DeviceId{0}), false);
    pinned.copy_ahead();
    EXPECT_TRUE(of(all_[0])->on_device());
    of(all_[0])->unpin();
  }
  device().curve().end();
}

TEST_F(PlannedLeaveTest, ThePassRecordsItsUses) {
  make();
  pass(3, {});
  ASSERT_EQ(curve_.model_state_uses.size(), 4U);  // the last operator used another one
  for (std::size_t each = 0; each < 3; ++each) {
    const StepCurve::ModelStateUses& uses = curve_.model_state_uses[each];
    EXPECT_EQ(uses.storage, id(each));
    EXPECT_EQ(uses.bytes, of(all_[each])->size().count());
    EXPECT_EQ(uses.before, 1U);
    EXPECT_LT(uses.from, uses.to);
    EXPECT_FALSE(uses.written);
  }
}

TEST_F(PlannedLeaveTest, GradientsAreWritten) {
  make();
  all_.push_back(manage(on_device(values(0, kLarge)), ModelClass::kGradient));
  std::swap(all_[0], all_.back());
  pass(2, {});
  ASSERT_FALSE(curve_.model_state_uses.empty());
  EXPECT_TRUE(curve_.model_state_uses.front().written);
}

}  // namespace
}  // namespace spillway
