// SPDX-License-Identifier: Apache-2.0
// A model in slices in a program without Python: LibTorch on the emulated GPU.
#include "tests/torch_glue/emulated_operators.h"
#include "torch_glue/cuda_allocator/cuda_allocator.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/variable.h>

#include <gtest/gtest.h>

#include <spillway/torch/offload_model.h>
#include <spillway/torch/region.h>

#include <cstdlib>
#include <string>
#include <tuple>

namespace spillway {
namespace {

constexpr std::int64_t kWidth = 32;
constexpr std::size_t kLayers = 5;
const c10::Device kDevice(c10::kCUDA, 0);

/// Layers with a matrix and a running mean, which the forward pass changes. The first is widest.
struct Net {
  explicit Net(c10::Device device) {
    for (std::size_t i = 0; i < kLayers; ++i) {
      const std::int64_t inside = i == 0 ? 2 * kWidth : kWidth;
      const auto values = [&](std::int64_t rows, std::int64_t columns) {
        const at::Tensor places = at::arange(rows * columns, at::kFloat).add_(1.0 + double(i));
        return places.sin().view({rows, columns}).mul(0.1).to(device);
      };
      up.push_back(values(kWidth, inside).set_requires_grad(true));
      down.push_back(values(inside, kWidth).set_requires_grad(true));
      mean.push_back(at::zeros({kWidth}, at::TensorOptions().device(device)));
    }
  }

  at::Tensor run(std::size_t layer, const at::Tensor& x) {
    ++runs;
    const at::Tensor y = x.mm(up[layer]).tanh().mm(down[layer]);
    const at::Tensor none;
    return std::get<0>(at::native_batch_norm(
        y, none, none, mean[layer], mean[layer].add(1), /*training=*/true, 0.1, 1e-5));
  }

  std::vector<OffloadModel::Layer> layers() {
    std::vector<OffloadModel::Layer> all;
    for (std::size_t i = 0; i < kLayers; ++i) {
      all.push_back({{up[i], down[i]}, {mean[i]}, [this, i](const at::Tensor& x) {
                       return run(i, x);
                     }});
    }
    return all;
  }

  std::vector<at::Tensor> up, down, mean;
  int runs = 0;
};

at::Tensor input(std::int64_t rows) {
  return at::arange(rows * kWidth, at::kFloat).mul(0.37).cos().view({rows, kWidth});
}

class OffloadModelTest : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_TRUE(emulated_operators()) << dlerror();
    ASSERT_TRUE(use_allocator().ok());
  }

  void TearDown() override { end_step(); }
};

class OffloadModelWaysTest
    : public OffloadModelTest,
      public testing::WithParamInterface<std::tuple<bool, std::size_t, std::size_t>> {};

at::Tensor plain_loop(Net& net, const at::Tensor& x, std::size_t pieces) {
  std::vector<at::Tensor> results = x.to(kDevice).chunk(static_cast<std::int64_t>(pieces));
  for (std::size_t layer = 0; layer < kLayers; ++layer) {
    for (at::Tensor& piece : results)
      piece = net.run(layer, piece);
  }
  return at::cat(results);
}

/// A backward pass and a step of an optimizer.
void learn(Net& net, const at::Tensor& result) {
  torch::autograd::backward({result.square().sum()}, {});
  const at::NoGradGuard no_gradients;
  for (auto* const matrices : {&net.up, &net.down}) {
    for (at::Tensor& matrix : *matrices) {
      matrix.sub_(matrix.grad(), 0.01);
      matrix.mutable_grad() = at::Tensor();
    }
  }
}

TEST_P(OffloadModelWaysTest, ResultsAndModelAreThoseOfAPlainLoopOverTheSamePieces) {
  const auto [checkpointed, slices, pieces] = GetParam();
  Net plain(kDevice);
  Net net(at::kCPU);
  OffloadModelOptions options;
  options.num_slices = slices;
  options.checkpoint_activation = checkpointed;
  options.num_microbatches = pieces;
  OffloadModel model(net.layers(), kDevice, options);
  for (int step = 0; step < 3; ++step) {
    const at::Tensor x = input(10) + step;
    const at::Tensor expected = plain_loop(plain, x, pieces);
    const at::Tensor result = model.forward(x);
    EXPECT_TRUE(result.equal(expected)) << step;
    learn(plain, expected);
    learn(net, result);
    end_step();
  }
  EXPECT_EQ(net.runs, plain.runs * (checkpointed ? 2 : 1));
  EXPECT_EQ(last_step("checkpoint").offloaded > 0, checkpointed);
  for (std::size_t i = 0; i < kLayers; ++i) {
    EXPECT_TRUE(net.up[i].equal(plain.up[i].cpu())) << i;
    EXPECT_TRUE(net.down[i].equal(plain.down[i].cpu())) << i;
    EXPECT_TRUE(net.mean[i].equal(plain.mean[i].cpu())) << i;
    EXPECT_TRUE(net.up[i].is_cpu());
  }
}

INSTANTIATE_TEST_SUITE_P(Ways,
                         OffloadModelWaysTest,
                         testing::Combine(testing::Bool(),
                                          testing::Values(1, 2, kLayers),
                                          testing::Values(1, 3)));

TEST_F(OffloadModelTest, OffloadedBytesDoNotDependOnTheNumberOfPieces) {
  const auto moved = [](std::size_t pieces) {
    Net net(at::kCPU);
    OffloadModel model(net.layers(), kDevice, {.num_slices = 2, .num_microbatches = pieces});
    torch::autograd::backward({model.forward(input(10)).sum()}, {});
    return model.stats();
  };
  const auto one = moved(1);
  const auto five = moved(5);
  EXPECT_GT(one.loaded_bytes, 0U);
  EXPECT_EQ(one.loaded_bytes, five.loaded_bytes);
  EXPECT_EQ(one.gradient_bytes, five.gradient_bytes);
}

TEST_F(OffloadModelTest, ASliceIsTwoPartsOfAboutEqualBytes) {
  Net net(at::kCPU);
  // Four parts of five layers: the widest one is alone, and takes what two of the others do.
  OffloadModel model(net.layers(), kDevice, {.num_slices = 2});
  torch::autograd::backward({model.forward(input(4)).sum()}, {});
  const std::uint64_t widest = 2 * 2 * kWidth * kWidth * sizeof(float);
  EXPECT_GE(model.stats().slot_bytes, 2 * widest);
  EXPECT_LT(model.stats().slot_bytes, 2 * widest + 4096);
}

/// Copies run as late as they may.
class OffloadModelLateTest : public OffloadModelTest {
 protected:
  void SetUp() override {
    setenv("SPILLWAY_EMULATE_SCHEDULE", "late", 1);  // NOLINT(concurrency-mt-unsafe)
    OffloadModelTest::SetUp();
  }
};

TEST_F(OffloadModelLateTest, WithoutGradientsBuffersAreHomeWhenItReturns) {
  Net plain(kDevice);
  Net net(at::kCPU);
  OffloadModel model(net.layers(), kDevice);
  const at::NoGradGuard no_gradients;
  const at::Tensor expected = plain_loop(plain, input(4), 1);
  static_cast<void>(model.forward(input(4)));
  std::vector<float> there;  // read by the host, which waits for nothing here
  for (const at::Tensor& mean : net.mean)
    there.push_back(mean.data_ptr<float>()[0]);
  for (std::size_t i = 0; i < kLayers; ++i)
    EXPECT_EQ(there[i], plain.mean[i].cpu().data_ptr<float>()[0]) << i;
}

void expect_refused(const std::function<void()>& call, const std::string& words) {
  try {
    call();
    ADD_FAILURE() << "went on: " << words;
  } catch (const c10::ValueError& error) {
    EXPECT_NE(std::string(error.what()).find(words), std::string::npos) << error.what();
  }
}

TEST_F(OffloadModelTest, WhatCannotBeUsedIsNamed) {
  Net net(at::kCPU);
  const auto make = [&](OffloadModelOptions options) {
    return [&net, options] {
      OffloadModel model(net.layers(), kDevice, options);
    };
  };
  expect_refused([] { OffloadModel model({}, kDevice); }, "layers");
  expect_refused(make({.num_slices = 0}),
                 "num_slices must be from 1 to the number of layers, 5, not 0");
  expect_refused(make({.num_slices = 6}),
                 "num_slices must be from 1 to the number of layers, 5, not 6");
  expect_refused(make({.num_microbatches = 0}), "num_microbatches must be at least 1, not 0");
  expect_refused(
      [&] {
        auto layers = net.layers();
        layers[2].forward = nullptr;
        OffloadModel model(std::move(layers), kDevice);
      },
      "layers[2]");
  expect_refused([&] { OffloadModel model(net.layers(), at::kCPU); }, "device must be cuda:<n>");
  OffloadModel model(net.layers(), kDevice, {.num_microbatches = 2});
  expect_refused([&] { model.forward(at::scalar_tensor(1)); }, "has no dimension 0 to split");
}

}  // namespace
}  // namespace spillway
