// SPDX-License-Identifier: Apache-2.0
// The part of every micro-benchmark's program that is the same: options, device, context.
#include "bench/micro/micro.h"

#include <algorithm>
#include <cstdio>
#include <vector>

namespace spillway::micro {
namespace {

// Of one repetition; the clock of the emulated GPU is the same each time.
int iterations() {
  return driver::emulated() ? 1 : 3;
}

int repetitions() {
  return driver::emulated() ? 3 : 5;
}

std::unique_ptr<Probe>& opened() {
  static std::unique_ptr<Probe> probe;
  return probe;
}

double least(const std::vector<double>& values) {
  return *std::min_element(values.begin(), values.end());
}

double most(const std::vector<double>& values) {
  return *std::max_element(values.begin(), values.end());
}

void keep_statistics(benchmark::internal::Benchmark* benchmark, int repeats) {
  benchmark->Repetitions(repeats)
      ->DisplayAggregatesOnly(true)
      ->ComputeStatistics("min", least)
      ->ComputeStatistics("max", most);
}

int run(int count, char** words) {
  benchmark::Initialize(&count, words);
  if (benchmark::ReportUnrecognizedArguments(count, words)) return 2;
  auto probe = Probe::open();
  if (!probe.ok()) {
    std::fprintf(stderr, "%s: %s\n", words[0], probe.status().message().c_str());
    return 2;
  }
  opened() = std::move(probe).value();
  const char* clock = std::getenv("SPILLWAY_EMULATE_CLOCK");  // NOLINT(concurrency-mt-unsafe)
  const bool modeled = driver::emulated() && clock != nullptr && std::string(clock) == "virtual";
  benchmark::AddCustomContext("device", opened()->name());
  benchmark::AddCustomContext("emulated", driver::emulated() ? "yes" : "no");
  benchmark::AddCustomContext("device_clock", modeled ? "virtual" : "real");
  register_benchmarks();
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
  benchmark::ClearRegisteredBenchmarks();  // and what they hold, before the device
  opened().reset();
  return 0;
}

}  // namespace

Probe& probe() {
  return *opened();
}

std::string size_name(Bytes size) {
  const std::uint64_t count = size.count();
  for (const auto& [shift, unit] : {std::pair{30U, "GiB"}, {20U, "MiB"}, {10U, "KiB"}}) {
    if (count >> shift != 0) return std::to_string(count >> shift) + unit;
  }
  return std::to_string(count) + "B";
}

/// What Google Benchmark keeps, the analyzer takes for a leak: it does not see this.
benchmark::internal::Benchmark* add(const std::string& name, const Body& body);
#ifndef __clang_analyzer__
benchmark::internal::Benchmark* add(const std::string& name, const Body& body) {
  return benchmark::RegisterBenchmark(name.c_str(), body);
}
#endif

void add_measured(const std::string& name, const Body& body) {
  keep_statistics(
      add(name, body)->UseManualTime()->Iterations(iterations())->Unit(benchmark::kMicrosecond),
      repetitions());
}

void add_once(const std::string& name, const Body& body) {
  keep_statistics(add(name, body)->UseManualTime()->Iterations(1)->Unit(benchmark::kMicrosecond),
                  2);
}

void add_repeated(const std::string& name, const Body& body) {
  keep_statistics(add(name, body)->MinTime(0.05)->Unit(benchmark::kNanosecond), repetitions());
}

bool failed(benchmark::State& state, const Status& status) {
  if (!status.ok()) state.SkipWithError(status.message().c_str());
  return !status.ok();
}

}  // namespace spillway::micro

int main(int count, char** words) {
  return spillway::micro::run(count, words);
}
