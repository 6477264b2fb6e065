// SPDX-License-Identifier: Apache-2.0
#include "emulator/device/clock.h"

#include <algorithm>
#include <iterator>

namespace spillway::emulator {

Clock::Clock(const ClockSettings& settings, int devices)
    : settings_(settings),
      made_(std::chrono::steady_clock::now()),
      engines_(static_cast<std::size_t>(devices)) {}

double Clock::run(int device, double ready, const Cost& cost) {
  const double begin = std::max(ready, host_);
  const auto bytes = static_cast<double>(cost.bytes);
  Engines& engines = engines_[static_cast<std::size_t>(device)];
  switch (cost.kind) {
    case Cost::Kind::kHostToDevice:
      return copy(engines, Work::kToDevice, begin, cost);
    case Cost::Kind::kDeviceToHost:
      return copy(engines, Work::kFromDevice, begin, cost);
    case Cost::Kind::kOnHost:
      return begin + bytes / rates::kOnHost;
    case Cost::Kind::kBetweenDevices:
      return compute(
          engines, cost.kernel, begin, settings_.rates.kernel + bytes / settings_.rates.peers);
    case Cost::Kind::kCollective: {
      const double seconds = settings_.rates.kernel + bytes / settings_.rates.peers;
      engines.busy[static_cast<std::size_t>(Work::kCollective)] += seconds;
      return begin + seconds;
    }
    case Cost::Kind::kMemory:
      return compute(engines,
                     cost.kernel,
                     begin,
                     settings_.rates.kernel + std::max(bytes / settings_.rates.memory, cost.least));
    default:
      return begin;
  }
}

double Clock::copy(Engines& engines, Work direction, double ready, const Cost& cost) const {
  const bool in = direction == Work::kToDevice;
  Engine& engine = in ? engines.to_device : engines.from_device;
  const Engine& other = in ? engines.from_device : engines.to_device;
  const double rate = in ? settings_.host_to_device : settings_.device_to_host;
  const double moving = std::max(static_cast<double>(cost.bytes) / rate, cost.least);
  while (!engine.copies.empty() && engine.copies.front().second <= host_)
    engine.copies.pop_front();
  if (cost.bytes <= rates::kSmallCopy && ready < engine.end) {
    const double seconds = settings_.latency + moving;
    engines.busy[static_cast<std::size_t>(direction)] += seconds;
    engine.end += seconds;  // of the copies that it passes
    return turn_of_small(engine, ready) + seconds;
  }
  engine.begin = std::max(ready, engine.end);
  const double seconds = beside(other, engine.begin, settings_.latency + moving);
  engine.end = engine.begin + seconds;
  if (settings_.is_virtual) engine.copies.emplace_back(engine.begin, engine.end);
  engines.busy[static_cast<std::size_t>(direction)] += seconds;
  return engine.end;
}

/// When a small copy begins: once the copy that runs when it is ready has ended. The engine serves
/// streams in turn, and each of them offers one copy at a time.
double Clock::turn_of_small(const Engine& engine, double ready) {
  for (const auto& [begin, end] : engine.copies)
    if (ready < end) return begin <= ready ? end : ready;
  return ready;
}

/// Duration of a copy that takes `alone` seconds on an idle link. While the other engine's last
/// copy runs, both share the link. That copy was submitted earlier and keeps its duration, so this
/// one carries the delay of both.
double Clock::beside(const Engine& other, double begin, double alone) const {
  const double share = std::max(0.0, 2 * settings_.rates.duplex - 1);
  const double before = std::max(0.0, other.begin - begin);
  const double together = std::max(0.0, other.end - std::max(begin, other.begin));
  const double left = alone - before;
  if (left <= 0) return alone;
  if (left <= together * share) return before + left / share;
  return before + together + left - together * share;
}

/// Kernels of several streams share the device: one rests while those that were submitted before it
/// run. So their times add up, in whatever order they are submitted.
double Clock::compute(Engines& engines, KernelKind kind, double begin, double seconds) const {
  engines.busy[static_cast<std::size_t>(kind)] += seconds;
  double end = begin + seconds;
  if (!settings_.is_virtual) return end;
  auto& running = engines.kernels;
  while (!running.empty() && running.front().second <= host_)
    running.pop_front();
  auto first = running.end();  // of those that end after it begins
  while (first != running.begin() && std::prev(first)->second >= begin)
    --first;
  double from = begin;
  auto last = first;
  for (; last != running.end() && last->first < end; ++last) {
    end += last->second - std::max(begin, last->first);
    from = std::min(from, last->first);
  }
  running.insert(running.erase(first, last), {from, end});
  return end;
}

void Clock::host_creates(std::size_t bytes) {
  host_works(settings_.rates.create + static_cast<double>(bytes) / settings_.rates.create_rate);
}

void Clock::host_maps() {
  host_works(settings_.rates.map);
}

void Clock::host_allows(std::size_t chunks, std::size_t devices) {
  host_works(settings_.rates.access * static_cast<double>(chunks * devices));
}

void Clock::host_unmaps(std::size_t chunks) {
  host_works(settings_.rates.unmap * static_cast<double>(chunks));
}

void Clock::host_releases(std::size_t bytes) {
  host_works(settings_.rates.release + static_cast<double>(bytes) / settings_.rates.release_rate);
}

double Clock::now_ms() const {
  if (settings_.is_virtual) return host_ * 1e3;
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - made_)
      .count();
}

}  // namespace spillway::emulator
