// SPDX-License-Identifier: Apache-2.0
// Budgets in a program without Python: LibTorch on the emulated GPU.
#include "tests/torch_glue/emulated_operators.h"
#include "torch_glue/cuda_allocator/cuda_allocator.h"

#include <ATen/ATen.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/util/Exception.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/variable.h>

#include <gtest/gtest.h>

#include <spillway/torch/budget.h>
#include <spillway/torch/region.h>

#include <string>
#include <utility>
#include <vector>

namespace spillway {
namespace {

constexpr std::uint64_t kStorage = 1ULL << 20U;  // bytes
constexpr int kBudgetLayers = 12;

class BudgetRegionTest : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_TRUE(emulated_operators()) << dlerror();
    ASSERT_TRUE(use_allocator().ok());
    end_step();
  }
};

at::Tensor budget_input() {
  const auto options = at::TensorOptions().device(at::kCUDA).dtype(at::kFloat);
  const auto count = static_cast<std::int64_t>(kStorage / sizeof(float));
  return at::arange(count, options).div_(count).set_requires_grad(true);
}

/// Each layer saves its result, which nothing can recompute.
at::Tensor budget_loss_of(const at::Tensor& x) {
  at::Tensor y = x;
  for (int layer = 0; layer < kBudgetLayers; ++layer)
    y = y.cumsum(0).div(1000).tanh();
  return y.sum();
}

std::uint64_t peak_since_reset() {
  const auto stats = c10::cuda::CUDACachingAllocator::getDeviceStats(0);
  const auto all = static_cast<std::size_t>(c10::CachingAllocator::StatType::AGGREGATE);
  return static_cast<std::uint64_t>(stats.allocated_bytes.at(all).peak);
}

void backward_within(const at::Tensor& x,
                     const std::string& budget,
                     const BudgetSettings& settings) {
  at::Tensor loss;
  {
    const BudgetRegion region(budget, settings);
    loss = budget_loss_of(x);
  }
  torch::autograd::backward({loss}, {});
}

/// The gradient and the peak of the last of some steps.
std::pair<at::Tensor, std::uint64_t> train(const std::string& budget,
                                           const BudgetSettings& settings = {}) {
  const at::Tensor x = budget_input();
  for (int step = 0; step < 4; ++step) {
    x.mutable_grad() = at::Tensor();
    c10::cuda::CUDACachingAllocator::resetPeakStats(0);
    backward_within(x, budget, settings);
    end_step();
  }
  return {x.grad(), peak_since_reset()};
}

/// During its lifetime, collects PyTorch's warnings of this thread.
class Warnings : public c10::WarningHandler {
 public:
  Warnings() : outer_(c10::WarningUtils::get_warning_handler()) {
    c10::WarningUtils::set_warning_handler(this);
  }

  ~Warnings() override { c10::WarningUtils::set_warning_handler(outer_); }

  Warnings(const Warnings&) = delete;
  Warnings& operator=(const Warnings&) = delete;

  void process(const c10::Warning& warning) override { texts.push_back(warning.msg()); }

  std::vector<std::string> texts;

 private:
  c10::WarningHandler* const outer_;
};

TEST_F(BudgetRegionTest, AStepStaysWithinItsBudgetAndHasThePlainGradients) {
  const at::Tensor plain = budget_input();
  torch::autograd::backward({budget_loss_of(plain)}, {});
  const std::uint64_t budget = 10 * kStorage;

  const auto [gradient, peak] = train(std::to_string(budget), {.tag = "within"});

  EXPECT_TRUE(gradient.equal(plain.grad()));
  EXPECT_LE(peak, budget);
  const TagTotals totals = last_step("within");
  EXPECT_GT(totals.offloaded, 0U);
  EXPECT_LT(totals.offloaded, totals.offloadable);  // and no more than it must
}

TEST_F(BudgetRegionTest, WithRoomForEverythingNothingMoves) {
  train("auto", {.tag = "all of it"});

  EXPECT_EQ(last_step("all of it").offloaded, 0U);
  EXPECT_EQ(last_step("all of it").offloadable, kBudgetLayers * kStorage);
}

TEST_F(BudgetRegionTest, ABudgetThatCannotBeMetThrowsOnceAndStatesWhatWouldDo) {
  std::uint64_t smallest = 0;
  try {
    train("1MiB", {.tag = "missed"});
  } catch (const BudgetError& error) {
    EXPECT_EQ(error.budget(), kStorage);
    EXPECT_EQ(error.device(), 0);
    EXPECT_GE(error.begin(), kStorage);  // the input
    EXPECT_LE(error.begin() + error.activations(), error.smallest());
    smallest = error.smallest();
  }
  EXPECT_GT(smallest, kStorage);
  EXPECT_NO_THROW(end_step());

  const auto [gradient, peak] = train(std::to_string(smallest), {.tag = "missed"});
  EXPECT_LE(peak, smallest);
}

TEST_F(BudgetRegionTest, TheFirstOptimizerStepOnlyWarns) {
  const at::Tensor x = budget_input();
  {
    Warnings warnings;
    EXPECT_NO_THROW(backward_within(x, "1MiB", {.tag = "first"}));
    EXPECT_TRUE(warnings.texts.empty());  // an optimizer step may follow
    EXPECT_NO_THROW(end_step());
    ASSERT_EQ(warnings.texts.size(), 1U);
    EXPECT_NE(warnings.texts[0].find("at least"), std::string::npos) << warnings.texts[0];
  }
  x.mutable_grad() = at::Tensor();
  EXPECT_THROW(backward_within(x, "1MiB", {.tag = "first"}), BudgetError);
  EXPECT_NO_THROW(end_step());
}

TEST_F(BudgetRegionTest, WithoutAnEndOfItsStepAMissThrowsInTheNextRegion) {
  const at::Tensor x = budget_input();
  EXPECT_NO_THROW(backward_within(x, "1MiB", {.tag = "unended"}));
  try {
    const BudgetRegion region("1MiB", {.tag = "unended"});
    FAIL() << "the missed budget was not reported";
  } catch (const BudgetError& error) {
    EXPECT_TRUE(error.is_lower_bound());
  }
  EXPECT_NO_THROW(end_step());
}

TEST_F(BudgetRegionTest, WhatIsNoBudgetThrowsAndOpensNothing) {
  EXPECT_THROW(BudgetRegion("much"), c10::ValueError);
  EXPECT_THROW(BudgetRegion("0%"), c10::ValueError);
  EXPECT_THROW(BudgetRegion("1000TiB"), c10::ValueError);
  EXPECT_THROW(BudgetRegion("1GiB", {.time_limit = 0.5}), c10::ValueError);
  EXPECT_THROW(BudgetRegion("1GiB", {.tag = "a//b"}), c10::ValueError);
  torch::autograd::backward({budget_loss_of(budget_input())}, {});
  end_step();

  EXPECT_EQ(last_step("budget").offloadable, 0U);
}

}  // namespace
}  // namespace spillway
