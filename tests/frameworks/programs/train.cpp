// SPDX-License-Identifier: Apache-2.0
#include <nvtx3/nvToolsExt.h>
#include <torch/nn/functional/loss.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/sgd.h>

#include <dlfcn.h>

#include <cstdint>
#include <cstdio>
#include <string>

namespace {

/// Each layer in an NVTX range of its own.
torch::Tensor forward(torch::nn::Linear& wide, torch::nn::Linear& narrow, const torch::Tensor& x) {
  nvtxRangePushA("model.gelu");
  const auto hidden = torch::gelu(wide->forward(x));
  nvtxRangePop();
  nvtxRangePushA("model.narrow");
  auto outputs = narrow->forward(hidden);
  nvtxRangePop();
  return outputs;
}

}  // namespace

// A LibTorch program without Python: `train cpu` or `train cuda` trains two layers and prints the
// losses and all parameters, exactly. `train cuda copies` prints to stderr how many bytes the
// emulated GPU has copied to the host.
int main(int argc, char** argv) {
  const torch::Device device(argc > 1 ? argv[1] : "cpu");
  torch::manual_seed(0);
  torch::nn::Linear wide(8, 32);
  torch::nn::Linear narrow(32, 4);
  const auto inputs = torch::randn({16, 8});
  const auto targets = torch::randn({16, 4});
  wide->to(device);
  narrow->to(device);
  auto parameters = wide->parameters();
  for (const auto& parameter : narrow->parameters())
    parameters.push_back(parameter);
  torch::optim::SGD optimizer(parameters, torch::optim::SGDOptions(0.1).momentum(0.9));

  for (int step = 0; step < 10; ++step) {
    optimizer.zero_grad();
    const auto outputs = forward(wide, narrow, inputs.to(device) * (step + 1));
    const auto loss = torch::mse_loss(outputs, targets.to(device));
    loss.backward();
    optimizer.step();
    std::printf("%a\n", loss.item<double>());
  }
  for (const auto& parameter : parameters) {
    const auto numbers = parameter.detach().cpu().to(torch::kFloat64).contiguous();
    for (int64_t i = 0; i < numbers.numel(); ++i)
      std::printf("%a\n", numbers.data_ptr<double>()[i]);
  }
  if (argc > 2 && std::string(argv[2]) == "copies") {
    const auto count = reinterpret_cast<std::uint64_t (*)(const char*)>(
        dlsym(RTLD_DEFAULT, "spillway_emulator_count"));
    std::fprintf(stderr, "%llu", static_cast<unsigned long long>(count("bytes_to_host")));
  }
  return 0;
}
