// SPDX-License-Identifier: Apache-2.0
#include "allocator/plan/bound.h"
#include "allocator/plan/budget_chooser.h"
#include "allocator/plan/planner.h"
#include "tests/plan/offered_steps.h"
#include "tests/plan/profiles.h"

#include <benchmark/benchmark.h>

namespace spillway {
namespace {

StepProfile step_of(benchmark::State& state) {
  std::mt19937_64 random(1);
  return test_steps::random_step(random, static_cast<std::size_t>(state.range(0)));
}

/// Half way between everything offloaded and everything kept.
Bytes middle_of(const StepProfile& step) {
  const std::uint64_t least = plan_step(step, Bytes{}).peak.count();
  const std::uint64_t most = plan_step(step, Bytes{~0ULL}).peak.count();
  return Bytes{(least + most) / 2};
}

void plan(benchmark::State& state) {
  const StepProfile step = step_of(state);
  const Bytes budget = middle_of(step);
  for (auto _ : state)
    benchmark::DoNotOptimize(plan_step(step, budget));
}

BENCHMARK(plan)->Arg(1000)->Arg(5000)->Arg(20000)->Unit(benchmark::kNanosecond);

/// Half of the storages can be recomputed, each from one or two near it.
void plan_with_operands(benchmark::State& state) {
  std::mt19937_64 random(1);
  const StepProfile step =
      test_steps::random_step_with_operands(random, static_cast<std::size_t>(state.range(0)), 8);
  const Bytes budget = middle_of(step);
  for (auto _ : state)
    benchmark::DoNotOptimize(plan_step(step, budget));
}

BENCHMARK(plan_with_operands)->Arg(1000)->Arg(5000)->Unit(benchmark::kNanosecond);

/// The first storage of a step that begins with other allocated bytes, so that plans are made.
/// Known: 64 sequences of as many storages, which begin alike.
void begin_step(benchmark::State& state) {
  const auto storages = static_cast<std::size_t>(state.range(0));
  constexpr std::uint64_t kBegin = 1000;
  BudgetChooser chooser(Bytes{kBegin + 50 * storages});
  std::vector<std::uint64_t> sizes(storages, 100);
  for (std::uint64_t sequence = 1; sequence <= 64; ++sequence) {
    sizes.back() = sequence;
    for (int recorded = 0; recorded < 3; ++recorded)
      step(chooser, sizes, kBegin);
  }
  std::uint64_t begin = kBegin;
  for (auto _ : state) {
    benchmark::DoNotOptimize(chooser.choose(Bytes{100}, Bytes{++begin}));
    chooser.abandon_step();
  }
}

BENCHMARK(begin_step)->Arg(1000)->Arg(5000)->Unit(benchmark::kNanosecond);

void bound(benchmark::State& state) {
  const StepProfile step = step_of(state);
  const Bytes budget = middle_of(step);
  for (auto _ : state)
    benchmark::DoNotOptimize(lower_bound(step, budget));
}

BENCHMARK(bound)->Arg(5000)->Unit(benchmark::kNanosecond);

}  // namespace
}  // namespace spillway
