// SPDX-License-Identifier: Apache-2.0
#include "allocator/transfer/host_arena.h"

#include <benchmark/benchmark.h>

#include <cstdlib>
#include <vector>

namespace spillway {
namespace {

using namespace literals;

/// An arena on the emulated device whose free memory is in many ranges, as in the middle of a step.
class WarmArena {
 public:
  WarmArena() {
    const auto device = driver::Device::open(*driver::api().value(), DeviceId{0}).value();
    arena_ = std::make_unique<HostArena>(device, Bytes{});
    std::vector<HostSlot> slots;
    for (std::uint64_t each = 1; each <= 1000; ++each) {
      slots.push_back(arena_->take(Bytes{each * 1024}).value());
    }
    for (std::size_t each = 0; each < slots.size(); ++each) {
      if (each % 2 != 0) held_.push_back(std::move(slots[each]));
    }
  }

  ~WarmArena() = default;
  WarmArena(const WarmArena&) = delete;
  WarmArena& operator=(const WarmArena&) = delete;

  HostArena& arena() { return *arena_; }

 private:
  std::unique_ptr<HostArena> arena_;
  std::vector<HostSlot> held_;
};

/// Takes a slot that needs no registration and returns it.
void BM_TakeSlot(benchmark::State& state) {
  WarmArena warm;
  const Bytes size{static_cast<std::uint64_t>(state.range(0))};
  const auto registered = driver::counters().registrations;
  for (auto _ : state) {
    HostSlot slot = warm.arena().take(size).value();
    benchmark::DoNotOptimize(slot.data());
  }
  state.counters["registrations"] =
      static_cast<double>(driver::counters().registrations - registered);
}

/// The same from the C library, as a scale for the above.
void BM_TakeMallocSlot(benchmark::State& state) {
  for (auto _ : state) {
    void* slot = std::aligned_alloc(64, static_cast<std::size_t>(state.range(0)));
    benchmark::DoNotOptimize(slot);
    std::free(slot);
  }
}

BENCHMARK(BM_TakeSlot)->Name("BM_TakeSlot/emulated")->Arg(4096)->Arg(256 << 10U);
BENCHMARK(BM_TakeMallocSlot)->Name("BM_TakeSlot/malloc")->Arg(4096)->Arg(256 << 10U);

}  // namespace
}  // namespace spillway
