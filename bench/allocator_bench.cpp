// SPDX-License-Identifier: Apache-2.0
// The hit path of PyTorch's CUDA allocator interface: `allocator_bench native|spillway|replayed
// [PAIRS]` prints one JSON line. `churn` is one pass, for instruction counters too. `replayed` is
// Spillway's with SPILLWAY_PLAN_REPLAY; steps make the same requests again.
#include "torch_glue/cuda_allocator/cuda_allocator.h"

#include <c10/cuda/CUDACachingAllocator.h>

#include <spillway/torch/region.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <string>
#include <utility>
#include <vector>

namespace {

using Clock = std::chrono::steady_clock;

constexpr std::size_t kLive = 64;
constexpr std::size_t kBatch = 256;

double ns_since(Clock::time_point begin) {
  return std::chrono::duration<double, std::nano>(Clock::now() - begin).count();
}

/// Blocks of many sizes that come and go, the oldest first.
class Churn {
 public:
  explicit Churn(c10::cuda::CUDACachingAllocator::CUDAAllocator& allocator)
      : allocator_(allocator) {
    std::mt19937 random(1);  // the same sizes for every allocator
    for (std::size_t& size : sizes_)
      size = (std::size_t{512} << random() % 13) + random() % 512;
    blocks_.fill(nullptr);
  }

  ~Churn() {
    for (void* const block : blocks_)
      allocator_.raw_delete(block);
  }

  Churn(const Churn&) = delete;
  Churn& operator=(const Churn&) = delete;

  void pair() {
    allocator_.raw_delete(blocks_[next_ % kLive]);
    blocks_[next_ % kLive] = allocator_.raw_alloc(sizes_[next_ % sizes_.size()]);
    ++next_;
  }

  /// Every size once, and nothing stays.
  void step() {
    next_ = 0;
    for (std::size_t i = 0; i < sizes_.size(); ++i)
      pair();
    for (void*& block : blocks_)
      allocator_.raw_delete(std::exchange(block, nullptr));
  }

  static constexpr std::size_t kOfStep = 1000;  // requests

  __attribute__((noinline)) void churn(std::size_t pairs) {
    for (std::size_t i = 0; i < pairs; ++i)
      pair();
  }

 private:
  c10::cuda::CUDACachingAllocator::CUDAAllocator& allocator_;
  std::array<std::size_t, kOfStep> sizes_{};
  std::array<void*, kLive> blocks_{};
  std::size_t next_ = 0;
};

double quantile(std::vector<double>& values, double at) {
  const auto index = static_cast<std::ptrdiff_t>(at * static_cast<double>(values.size() - 1));
  std::nth_element(values.begin(), values.begin() + index, values.end());
  return values[static_cast<std::size_t>(index)];
}

}  // namespace

int main(int count, char** arguments) {
  const std::string name = count > 1 ? arguments[1] : "";
  const std::size_t pairs = count > 2 ? std::strtoull(arguments[2], nullptr, 10) : 400'000;
  if ((name != "native" && name != "spillway" && name != "replayed") || pairs < kBatch) {
    std::fputs("usage: allocator_bench native|spillway|replayed [PAIRS, at least 256]\n", stderr);
    return 2;
  }
  if (name == "replayed") setenv("SPILLWAY_PLAN_REPLAY", "1", 1);
  if (name != "native") {
    const spillway::Status status = spillway::use_allocator();
    if (!status.ok()) {
      std::fputs((status.message() + "\n").c_str(), stderr);
      return 1;
    }
  }
  auto& allocator = *c10::cuda::CUDACachingAllocator::get();
  allocator.init(1);
  Churn churn(allocator);
  for (int i = 0; i < 20; ++i)
    churn.pair();
  for (std::size_t i = 0; i < 20'000; ++i)
    churn.pair();

  std::vector<double> batches;
  for (std::size_t done = 0; done + kBatch <= pairs; done += kBatch) {
    const Clock::time_point begin = Clock::now();
    churn.churn(kBatch);
    batches.push_back(ns_since(begin) / static_cast<double>(kBatch));
  }
  std::vector<double> singles;  // with the clock's own cost
  for (std::size_t i = 0; i < pairs; ++i) {
    const Clock::time_point begin = Clock::now();
    churn.pair();
    singles.push_back(ns_since(begin));
  }
  std::vector<double> steps;
  for (std::size_t done = 0; done < pairs + 4 * Churn::kOfStep; done += Churn::kOfStep) {
    const Clock::time_point begin = Clock::now();
    churn.step();
    steps.push_back(ns_since(begin) / static_cast<double>(Churn::kOfStep));
    if (name != "native") spillway::end_step();
  }
  std::printf(
      "{\"allocator\": \"%s\", \"pairs\": %zu, \"p50_ns\": %.1f, \"p999_ns\": %.1f, "
      "\"step_p50_ns\": %.1f}\n",
      name.c_str(),
      pairs,
      quantile(batches, 0.5),
      quantile(singles, 0.999),
      quantile(steps, 0.5));
  return 0;
}
