// SPDX-License-Identifier: Apache-2.0
// Trains through LibTorch, without Python, several times from the same weights: plainly, with a
// region whose activations wait in host memory and a checkpointed half, and within a budget. The
// losses are the same.
#include <torch/torch.h>

#include <spillway/torch/budget.h>
#include <spillway/torch/checkpoint.h>
#include <spillway/torch/region.h>

#include <cstdio>
#include <functional>
#include <memory>
#include <vector>

namespace {

constexpr std::size_t kLayers = 4;
constexpr int kWidth = 128;
const torch::Device kDevice(torch::kCUDA, 0);

using Layers = std::vector<std::shared_ptr<torch::nn::LinearImpl>>;

Layers layers() {
  torch::manual_seed(1);
  Layers made;
  for (std::size_t i = 0; i < kLayers; ++i)
    made.push_back(std::make_shared<torch::nn::LinearImpl>(kWidth, kWidth));
  return made;
}

std::vector<torch::Tensor> parameters(const Layers& layers) {
  std::vector<torch::Tensor> all;
  for (const auto& layer : layers) {
    for (const auto& parameter : layer->parameters())
      all.push_back(parameter);
  }
  return all;
}

using Forward = std::function<torch::Tensor(const torch::Tensor& x)>;

std::vector<float> train(const std::vector<torch::Tensor>& parameters, const Forward& forward) {
  torch::optim::SGD optimizer(parameters, /*lr=*/0.5);
  std::vector<float> losses;
  for (int step = 0; step < 3; ++step) {
    torch::manual_seed(10 + step);
    auto loss = forward(torch::randn({64, kWidth}).to(kDevice)).square().mean();
    loss.backward();
    optimizer.step();
    optimizer.zero_grad();
    losses.push_back(loss.item<float>());
    spillway::end_step();
  }
  return losses;
}

std::vector<float> train_plainly() {
  const auto net = layers();
  for (const auto& layer : net)
    layer->to(kDevice);
  return train(parameters(net), [&](torch::Tensor x) {
    for (const auto& layer : net)
      x = torch::tanh(layer->forward(x));
    return x;
  });
}

std::vector<float> train_with_activations_on_the_host() {
  const auto net = layers();
  for (const auto& layer : net)
    layer->to(kDevice);
  return train(parameters(net), [&](torch::Tensor x) {
    const spillway::OffloadRegion region(/*offload_ratio=*/0.5, "train");
    for (std::size_t i = 0; i < kLayers / 2; ++i)
      x = torch::tanh(net[i]->forward(x));
    const auto rest = [&net](const std::vector<torch::Tensor>& inputs) {
      torch::Tensor y = inputs[0];
      for (std::size_t i = kLayers / 2; i < kLayers; ++i)
        y = torch::tanh(net[i]->forward(y));
      return y;
    };
    return spillway::checkpoint(rest, {x}, {/*offload_to_cpu=*/true});
  });
}

/// What stays, moves or is recomputed is planned, for the least time.
std::vector<float> train_within_a_budget() {
  const auto net = layers();
  for (const auto& layer : net)
    layer->to(kDevice);
  return train(parameters(net), [&](torch::Tensor x) {
    const spillway::BudgetRegion region("80%");
    for (const auto& layer : net)
      x = torch::tanh(layer->forward(x));
    return x;
  });
}

}  // namespace

int main() {
  const auto plain = train_plainly();
  const bool same =
      train_with_activations_on_the_host() == plain && train_within_a_budget() == plain;
  std::printf(
      "losses %g %g %g: %s\n", plain[0], plain[1], plain[2], same ? "the same" : "different");
  return same ? 0 : 1;
}
