// SPDX-License-Identifier: Apache-2.0
// The pool of pinned host memory: taking and giving slots, and how fast it grows. Times of the
// host.
#include "bench/micro/host_memory.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <vector>

namespace spillway::micro {
namespace {

using namespace literals;
using SteadyClock = std::chrono::steady_clock;

/// An arena whose free memory is in many ranges, as in the middle of a step.
class WarmArena {
 public:
  static Result<std::unique_ptr<WarmArena>> make() {
    std::unique_ptr<WarmArena> made(new WarmArena);
    std::vector<HostSlot> others;
    for (std::uint64_t each = 1; each <= 1000; ++each) {
      SPILLWAY_ASSIGN_OR_RETURN(HostSlot slot, made->arena_.take(Bytes{each * 1024}));
      (each % 2 == 0 ? made->held_ : others).push_back(std::move(slot));
    }
    return made;
  }

  ~WarmArena() = default;
  WarmArena(const WarmArena&) = delete;
  WarmArena& operator=(const WarmArena&) = delete;

  HostArena& arena() { return arena_; }

 private:
  WarmArena() : arena_(probe().device(), Bytes{}) {}

  HostArena arena_;
  std::vector<HostSlot> held_;
};

/// Takes a slot that needs no new memory and returns it.
void hit(benchmark::State& state, Bytes size) {
  const auto warm = WarmArena::make();
  if (failed(state, warm.status())) return;
  HostArena& arena = warm.value()->arena();
  failed(state, arena.take(size).status());
  const auto before = driver::counters().registrations;
  for (auto _ : state) {
    auto slot = arena.take(size);
    if (failed(state, slot.status())) break;
    benchmark::DoNotOptimize(slot.value().data());
  }
  state.counters["registrations"] = static_cast<double>(driver::counters().registrations - before);
  state.SetLabel("host's time");
}

/// The same from the C library, as a scale.
void hit_malloc(benchmark::State& state, Bytes size) {
  for (auto _ : state) {
    void* slot = std::aligned_alloc(64, size.count());
    benchmark::DoNotOptimize(slot);
    std::free(slot);
  }
  state.SetLabel("host's time");
}

/// Makes host memory of one kind, and frees it outside of the time.
void grow(benchmark::State& state, HostKind kind, Bytes size) {
  const auto before = driver::counters().registrations;
  Seconds all{};
  Seconds touch{};
  Seconds pin{};
  for (auto _ : state) {
    const auto begun = SteadyClock::now();
    const auto made = HostMemory::make(probe(), kind, size);
    const Seconds taken = SteadyClock::now() - begun;
    if (failed(state, made.status())) return;
    state.SetIterationTime(taken.count());
    all += taken;
    touch += made.value()->touched();
    pin += made.value()->registered();
  }
  const auto rounds = static_cast<double>(state.iterations());
  const auto rate = [&](const char* name, Seconds taken) {
    if (taken > Seconds{})
      state.counters[name] = rounds * static_cast<double>(size.count()) / 1e9 / taken.count();
  };
  rate("GB_per_s", all);
  rate("touch_GB_per_s", touch);
  rate("register_GB_per_s", pin);
  state.counters["registrations"] =
      static_cast<double>(driver::counters().registrations - before) / rounds;
  state.SetLabel("host's time");
}

/// Slots of a step that repeats: what is pinned over what is in slots at most, after the pool has
/// been trimmed, and what it registers once it has.
void footprint(benchmark::State& state) {
  HostArena arena(probe().device(), Bytes{});
  std::vector<HostSlot> slots;
  const auto step = [&] {
    for (std::uint64_t i = 0; i < 256; ++i) {
      auto slot = arena.take(Bytes{(4096 + i * 7919) % 262'144 + 64});
      if (!slot.ok()) return slot.status();
      slots.push_back(std::move(slot).value());
    }
    slots.clear();
    return Status();
  };
  if (failed(state, step())) return;
  arena.reset_peak();
  if (failed(state, step())) return;
  arena.trim_sync();
  const auto before = driver::counters().registrations;
  for (auto _ : state) {
    if (failed(state, step())) break;
  }
  const HostArenaStats stats = arena.stats();
  state.counters["pinned_over_allocated"] = static_cast<double>(stats.registered.count()) /
                                            static_cast<double>(stats.in_slots_peak.count());
  state.counters["registrations"] = static_cast<double>(driver::counters().registrations - before);
  state.SetLabel("host's time");
}

}  // namespace

void register_benchmarks() {
  for (const Bytes size : {4_KiB, 256_KiB, Bytes{16U << 20U}}) {
    const std::string name = "BM_PinnedPool/hit/";
    add_repeated(name + "arena/" + size_name(size),
                 [=](benchmark::State& state) { hit(state, size); });
    add_repeated(name + "malloc/" + size_name(size),
                 [=](benchmark::State& state) { hit_malloc(state, size); });
  }
  add_repeated("BM_PinnedPool/step", footprint);
  // The largest show whether a rate is sustained.
  const Bytes machine{static_cast<std::uint64_t>(sysconf(_SC_PHYS_PAGES)) * 4096};
  const Bytes largest =
      driver::emulated() ? 64_MiB : std::min(Bytes{16ULL << 30U}, Bytes{machine.count() / 4});
  for (Bytes size = 64_MiB; size <= largest; size = Bytes{size.count() * 4}) {
    for (const HostKind kind :
         {HostKind::kArena, HostKind::kPinned, HostKind::kHugePages, HostKind::kSmallPages}) {
      const std::string name = std::string("BM_PinnedPool/grow/") + kind_name(kind) + '/';
      const auto body = [=](benchmark::State& state) {
        grow(state, kind, size);
      };
      size > Bytes{1ULL << 30U} ? add_once(name + size_name(size), body)
                                : add_measured(name + size_name(size), body);
    }
  }
}

}  // namespace spillway::micro
