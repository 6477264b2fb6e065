// SPDX-License-Identifier: Apache-2.0
// What a saved tensor costs: packed, unpacked and released by autograd itself, in a region that
// moves nothing, and in one that moves it, over PyTorch's own allocator. The host's time: the
// operators compute nothing, and copies run beside them.
#include "bench/micro/micro.h"

#include <ATen/ops/empty_like.h>
#include <ATen/ops/ones.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>

#include <spillway/torch/region.h>

#include <optional>

namespace spillway::micro {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

constexpr int kTensors = 256;  // of one pass

/// Needs its input in the backward pass, as most operators do.
struct Saves : torch::autograd::Function<Saves> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& input) {
    context->save_for_backward({input});
    return at::empty_like(input);
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    TORCH_CHECK(context->get_saved_variables().at(0).numel() > 0);
    return gradients;
  }
};

void saved(benchmark::State& state, std::optional<double> ratio, Bytes size) {
  const auto elements = static_cast<std::int64_t>(size.count() / sizeof(float));
  const at::Tensor first = at::ones({elements}, at::device(at::kCUDA)).requires_grad_();
  const at::Tensor gradient = at::ones({elements}, at::device(at::kCUDA));
  while (state.KeepRunningBatch(kTensors)) {
    at::Tensor value = first;
    {
      std::optional<OffloadRegion> region;
      if (ratio) region.emplace(*ratio, "bench");
      for (int i = 0; i < kTensors; ++i)
        value = Saves::apply(value);
    }
    benchmark::DoNotOptimize(torch::autograd::grad({value}, {first}, {gradient}));
    end_step();
  }
  if (ratio) {
    const TagTotals last = last_step("bench");
    state.counters["offloaded"] =
        static_cast<double>(last.offloaded) / static_cast<double>(last.offloadable);
  }
  state.SetLabel("host's time");
}

}  // namespace

void register_benchmarks() {
  using namespace literals;
  for (const Bytes size : {4_KiB, 1024_KiB}) {
    const auto add = [&](const std::string& name, std::optional<double> ratio) {
      add_repeated("BM_SavedTensor/" + name + '/' + size_name(size),
                   [=](benchmark::State& state) { saved(state, ratio, size); });
    };
    add("plain", std::nullopt);
    add("stays", 0);
    add("moves", 1);
  }
}

}  // namespace spillway::micro
