// SPDX-License-Identifier: Apache-2.0
// The engine in a program without Python: LibTorch on the emulated GPU.
#include "allocator/runtime/runtime.h"
#include "allocator/tag/tag.h"
#include "tests/torch_glue/emulated_operators.h"
#include "torch_glue/cuda_allocator/cuda_allocator.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/csrc/autograd/variable.h>

#include <gtest/gtest.h>

#include <spillway/torch/checkpoint.h>
#include <spillway/torch/region.h>

#include <cstddef>
#include <functional>
#include <vector>

namespace spillway {
namespace {

class OffloadRegionTest : public testing::Test {
 protected:
  // Not once for the suite: what fails there is reported as skipped.
  void SetUp() override {
    ASSERT_TRUE(emulated_operators()) << dlerror();
    ASSERT_TRUE(use_allocator().ok());
  }

  void TearDown() override { end_step(); }

  static TagStepStats last(TagId tag) {
    for (const TagStats& stats : Runtime::instance().stats().tags) {
      if (stats.tag == tag) return stats.last;
    }
    return {};
  }
};

at::Tensor loss_of(const at::Tensor& x) {
  return (x * 2).sigmoid().sum();
}

at::Tensor input() {
  const auto on_device = at::TensorOptions().device(at::kCUDA);
  return at::arange(4096, on_device.dtype(at::kFloat)).div_(4096).set_requires_grad(true);
}

at::Tensor loss_of_all(const std::vector<at::Tensor>& inputs) {
  return loss_of(inputs[0]);
}

TEST_F(OffloadRegionTest, ACheckpointedFunctionHasThePlainGradients) {
  const at::Tensor plain = input();
  torch::autograd::backward({loss_of(plain)}, {});
  const at::Tensor checkpointed = input();
  int runs = 0;
  const auto function = [&runs](const std::vector<at::Tensor>& inputs) {
    ++runs;
    return loss_of_all(inputs);
  };
  const at::Tensor loss = checkpoint(function, {checkpointed.mul(1)}, {.offload_to_cpu = true});
  EXPECT_EQ(runs, 1);
  torch::autograd::backward({loss}, {});

  EXPECT_EQ(runs, 2);
  EXPECT_TRUE(checkpointed.grad().equal(plain.grad()));
  EXPECT_EQ(last(intern_tag("checkpoint")).offloaded, Bytes{4096 * sizeof(float)});
}

TEST_F(OffloadRegionTest, WhatIsRecomputedHasThePlainGradients) {
  const auto loss = [](const at::Tensor& x) {
    return at::silu(x.mul(1)).square().sum();
  };
  const at::Tensor plain = input();
  torch::autograd::backward({loss(plain)}, {});
  const at::Tensor recomputed = input();
  {
    const RecomputeRegion region;
    torch::autograd::backward({loss(recomputed)}, {});
  }
  end_step();

  EXPECT_TRUE(recomputed.grad().equal(plain.grad()));
  EXPECT_EQ(last_step("recompute").left_to_recompute, 4096 * sizeof(float));
  EXPECT_EQ(last_step("recompute").recomputed, 4096 * sizeof(float));
}

TEST_F(OffloadRegionTest, TheLastStepOfATagIsReportedWithWhatStayedAndWhy) {
  const at::Tensor x = input();
  {
    const OffloadRegion region(1.0, "totals", {.min_bytes = 4096 * sizeof(float)});
    at::Tensor loss = (x * 2).sigmoid().sum();
    {
      const KeepingRegion stays;
      loss = loss + (x * 3).tanh().sum();
    }
    loss = loss + x.narrow(0, 0, 16).mul(1).sigmoid().sum();
    torch::autograd::backward({loss}, {});
  }
  end_step();

  const TagTotals totals = last_step("totals");
  EXPECT_EQ(totals.offloadable, 4096 * sizeof(float));
  EXPECT_EQ(totals.offloaded, totals.offloadable);
  EXPECT_EQ(totals.copied, totals.offloadable);
  EXPECT_EQ(totals.fetched, totals.offloadable);
  EXPECT_EQ(totals.skipped, (std::map<std::string, std::uint64_t>{{"tiny", 16 * sizeof(float)}}));
  EXPECT_EQ(last_step("never").offloadable, 0U);
}

/// Fetches begun when the last of four storages has been used.
std::uint64_t fetches_begun_after_one_use(std::uint64_t headroom, std::string_view tag) {
  const auto fetches = [] {
    const auto devices = Runtime::instance().stats().devices;
    return devices.empty() ? 0 : devices.front().residency.fetches;
  };
  std::uint64_t begun = 0;
  const std::uint64_t before = fetches();
  at::Tensor y = input() * 2;
  {
    const OffloadRegion region(1.0, tag, {.prefetch_headroom = headroom});
    for (int i = 0; i < 3; ++i)
      y = y.sigmoid();
    y.register_hook([&](const at::Tensor&) { begun = fetches() - before; });
    y = y.sigmoid();
  }
  at::Tensor loss = y.sum();
  y.reset();
  torch::autograd::backward({loss}, {});
  end_step();
  return begun;
}

TEST_F(OffloadRegionTest, WithoutHeadroomNothingIsFetchedEarly) {
  EXPECT_EQ(fetches_begun_after_one_use(0, "no headroom"), 1U);
  EXPECT_EQ(fetches_begun_after_one_use(1ULL << 30U, "headroom"), 4U);
}

TEST_F(OffloadRegionTest, GradientsEqualThoseOutsideARegion) {
  const at::Tensor plain = input();
  torch::autograd::backward({loss_of(plain)}, {});
  const at::Tensor offloaded = input();
  at::Tensor loss;
  {
    const OffloadRegion region(1.0, "c++");
    loss = loss_of(offloaded);
  }

  torch::autograd::backward({loss}, {});

  EXPECT_TRUE(offloaded.grad().equal(plain.grad()));
  EXPECT_EQ(last(intern_tag("c++")).offloaded, Bytes{4096 * sizeof(float)});
}

/// Hands a buffer over to be saved and writes it afterwards, in its own forward pass.
struct FilledLater : torch::autograd::Function<FilledLater> {
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& x) {
    at::Tensor kept = at::empty_like(x);
    context->save_for_backward({kept});
    at::cos_out(kept, x);
    return x * kept;
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 const torch::autograd::variable_list& gradients) {
    return {gradients[0] * context->get_saved_variables()[0]};
  }
};

TEST_F(OffloadRegionTest, WhatAnOperatorOrFunctionWritesAfterItWasSavedIsCopiedAfterwards) {
  const std::vector<std::function<at::Tensor(const at::Tensor&)>> functions{
      [](const at::Tensor& x) { return FilledLater::apply(x); },
      [](const at::Tensor& x) { return at::rrelu(x.neg(), 0.1, 0.3, /*training=*/true); },
      [](const at::Tensor& x) {
        at::Tensor y = x.neg();
        return at::rrelu_(y, 0.1, 0.3, /*training=*/true);
      }};
  for (std::size_t number = 0; number < functions.size(); ++number) {
    const auto gradient = [&](const auto& way) {
      at::manual_seed(3);
      const at::Tensor x = input();
      torch::autograd::backward({way(x.mul(1)).sum()}, {});
      end_step();
      return x.grad();
    };
    const auto& function = functions[number];
    const at::Tensor plain = gradient(function);
    const at::Tensor moved = gradient([&](const at::Tensor& x) {
      const OffloadRegion region(1.0, "late", {.min_bytes = 1});
      return function(x);
    });
    const at::Tensor checkpointed = gradient([&](const at::Tensor& x) {
      return checkpoint([&](const std::vector<at::Tensor>& inputs) { return function(inputs[0]); },
                        {x});
    });
    EXPECT_TRUE(moved.equal(plain)) << number;
    EXPECT_TRUE(checkpointed.equal(plain)) << number;
    EXPECT_GT(last(intern_tag("late")).offloaded, Bytes{}) << number;
  }
}

TEST_F(OffloadRegionTest, NothingMovesAfterItsEnd) {
  { const OffloadRegion region(1.0, "ended"); }

  torch::autograd::backward({loss_of(input())}, {});
  end_step();

  EXPECT_EQ(last(intern_tag("ended")).offloaded, Bytes{});
}

TEST_F(OffloadRegionTest, ARatioOutsideTheRangeThrowsAndOpensNothing) {
  EXPECT_THROW(OffloadRegion(1.5, "refused"), c10::ValueError);

  EXPECT_EQ(current_tag(), TagId::kUntagged);
}

}  // namespace
}  // namespace spillway
