// SPDX-License-Identifier: Apache-2.0
#include "allocator/heap/heap.h"

#include <benchmark/benchmark.h>

#include <vector>

namespace spillway {
namespace {

using namespace literals;

/// A heap on the emulated device, with blocks of many sizes live so that look-ups have something to
/// search.
class WarmHeap {
 public:
  WarmHeap() {
    const auto device = driver::Device::open(*driver::api().value(), DeviceId{0}).value();
    heap_ = Heap::create(device, {}).value();
    for (std::uint64_t i = 1; i <= 1000; ++i)
      blocks_.push_back(allocate(Bytes{i * 1024}));
  }

  ~WarmHeap() {
    for (const driver::DevicePtr block : blocks_)
      heap_->free(block);
  }

  WarmHeap(const WarmHeap&) = delete;
  WarmHeap& operator=(const WarmHeap&) = delete;

  driver::DevicePtr allocate(Bytes size) {
    return heap_->allocate(size, driver::Stream(CUstream{nullptr}), TagId::kUntagged).value();
  }

  Heap& heap() { return *heap_; }

  [[nodiscard]] driver::DevicePtr block(std::size_t index) const {
    return blocks_[index % blocks_.size()];
  }

 private:
  std::unique_ptr<Heap> heap_;
  std::vector<driver::DevicePtr> blocks_;
};

/// Allocates and frees a block of a size that is cached.
void BM_AllocateBlock(benchmark::State& state) {
  WarmHeap warm;
  const Bytes size{static_cast<std::uint64_t>(state.range(0))};
  warm.heap().free(warm.allocate(size));
  const auto created = driver::counters().allocations;
  for (auto _ : state) {
    const driver::DevicePtr block = warm.allocate(size);
    benchmark::DoNotOptimize(block);
    warm.heap().free(block);
  }
  state.counters["driver_allocations"] =
      static_cast<double>(driver::counters().allocations - created);
}

/// Finds the live block around an address inside it.
void BM_PointerLookup(benchmark::State& state) {
  WarmHeap warm;
  std::size_t index = 0;
  for (auto _ : state) {
    benchmark::DoNotOptimize(warm.heap().find(warm.block(index) + 100_B));
    index += 7;
  }
}

BENCHMARK(BM_AllocateBlock)->Name("BM_AllocateBlock/emulated")->Arg(4 << 10)->Arg(4 << 20);
BENCHMARK(BM_PointerLookup)->Name("BM_PointerLookup/emulated");

}  // namespace
}  // namespace spillway
