// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "bench/micro/probe.h"

#include <benchmark/benchmark.h>

#include <functional>
#include <string>

namespace spillway::micro {

/// What every program here shares: device 0, opened by main().
/// Requires: main() has begun to register or run benchmarks. Threads: the main one.
Probe& probe();

/// Each program's own: names its benchmarks to Google Benchmark. Called once, after probe() is
/// there.
void register_benchmarks();

/// In benchmarks' names and options: "to_device", "to_host".
constexpr const char* way_name(Way way) {
  return way == Way::kIn ? "to_device" : "to_host";
}

/// "64MiB", for names of benchmarks.
std::string size_name(Bytes size);

using Body = std::function<void(benchmark::State&)>;

/// Registers a benchmark whose body sets its times by `state.SetIterationTime`: a few iterations
/// of each of several repetitions, and of these the median, the least and the most.
void add_measured(const std::string& name, const Body& body);

/// The same, run once: for what takes seconds.
void add_once(const std::string& name, const Body& body);

/// Registers one of the host's time, whose body Google Benchmark repeats until it is sure.
void add_repeated(const std::string& name, const Body& body);

/// Ends a benchmark with the status as its error. Returns whether `status` is an error.
bool failed(benchmark::State& state, const Status& status);

}  // namespace spillway::micro
