// SPDX-License-Identifier: Apache-2.0
#include "allocator/heap/heap.h"

#include <benchmark/benchmark.h>

#include <array>
#include <vector>

namespace spillway {
namespace {

using namespace literals;

/// A heap on the emulated device, with blocks of many sizes live so that look-ups have something to
/// search.
class WarmHeap {
 public:
  explicit WarmHeap(const HeapOptions& options = {}) {
    const auto device = driver::Device::open(*driver::api().value(), DeviceId{0}).value();
    heap_ = Heap::create(device, options).value();
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

/// Finds the allocated block around an address inside it.
void BM_PointerLookup(benchmark::State& state) {
  WarmHeap warm;
  std::size_t index = 0;
  for (auto _ : state) {
    benchmark::DoNotOptimize(warm.heap().find(warm.block(index) + 100_B));
    index += 7;
  }
}

/// Allocates and frees a block while as many others are free, of many sizes and apart from each
/// other.
void BM_HitAmongFree(benchmark::State& state) {
  WarmHeap warm;
  const auto free = static_cast<std::size_t>(state.range(0));
  std::vector<driver::DevicePtr> blocks;
  for (std::size_t i = 0; i < 2 * free; ++i)
    blocks.push_back(warm.allocate(Bytes{512 * (1 + i % 64)}));
  for (std::size_t i = 0; i < blocks.size(); i += 2)
    warm.heap().free(blocks[i]);
  std::uint64_t next = 0;
  for (auto _ : state) {
    const driver::DevicePtr block = warm.allocate(Bytes{512 * (1 + next++ % 64)});
    benchmark::DoNotOptimize(block);
    warm.heap().free(block);
  }
  for (std::size_t i = 1; i < blocks.size(); i += 2)
    warm.heap().free(blocks[i]);
}

/// Threads that allocate and free on one heap, each on a stream of its own.
void BM_ManyStreams(benchmark::State& state) {
  static WarmHeap* warm = nullptr;
  if (state.thread_index() == 0) warm = new WarmHeap;
  const driver::Api& api = *driver::api().value();
  const driver::CurrentDevice current(api, driver::Device::open(api, DeviceId{0}).value().context);
  CUstream stream = nullptr;
  api.StreamCreateWithPriority(&stream, CU_STREAM_NON_BLOCKING, 0);
  for (auto _ : state) {
    // Thread 0 has made it: the loop begins in all threads together.
    // NOLINTNEXTLINE(clang-analyzer-core.CallAndMessage)
    const auto block = warm->heap().allocate(64_KiB, driver::Stream(stream), TagId::kUntagged);
    warm->heap().free(block.value());
  }
  api.StreamDestroy(stream);
  if (state.thread_index() == 0) delete warm;
}

/// Steps that make the same requests again, of many sizes: with their plan and without one.
void BM_Step(benchmark::State& state) {
  constexpr std::size_t kRequests = 1024;
  constexpr std::size_t kLive = 64;
  HeapOptions options;
  options.replay = state.range(0) != 0;
  WarmHeap warm(options);
  const auto step = [&] {
    std::array<driver::DevicePtr, kLive> live{};
    for (std::size_t i = 0; i < kRequests; ++i) {
      warm.heap().free(live[i % kLive]);
      live[i % kLive] = warm.allocate(Bytes{std::uint64_t{512} << (i * 7 % 13)});
    }
    for (const driver::DevicePtr block : live)
      warm.heap().free(block);
    warm.heap().placement().end_step();
  };
  for (int i = 0; i < 3; ++i)
    step();
  for (auto _ : state)
    step();
  state.counters["replayed"] = static_cast<double>(warm.heap().stats().replayed_allocations) /
                               static_cast<double>(warm.heap().stats().allocations);
}

BENCHMARK(BM_Step)->Name("BM_Step/emulated")->ArgName("replay")->Arg(0)->Arg(1);
BENCHMARK(BM_HitAmongFree)->Name("BM_HitAmongFree/emulated")->Arg(100)->Arg(100'000);
BENCHMARK(BM_ManyStreams)->Name("BM_ManyStreams/emulated")->Threads(1)->Threads(2)->Threads(8);
BENCHMARK(BM_AllocateBlock)->Name("BM_AllocateBlock/emulated")->Arg(4 << 10)->Arg(4 << 20);
BENCHMARK(BM_PointerLookup)->Name("BM_PointerLookup/emulated");

}  // namespace
}  // namespace spillway
