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

}  // namespace
}  // namespace spillway
