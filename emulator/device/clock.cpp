// SPDX-License-Identifier: Apache-2.0
#include "emulator/device/clock.h"

#include <algorithm>

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
      return copy(engines.to_device, begin, bytes, settings_.host_to_device);
    case Cost::Kind::kDeviceToHost:
      return copy(engines.from_device, begin, bytes, settings_.device_to_host);
    case Cost::Kind::kOnHost:
      return begin + bytes / rates::kOnHost;
    case Cost::Kind::kBetweenDevices:
      return begin + rates::kKernel + bytes / rates::kBetweenDevices;
    case Cost::Kind::kMemory:
      return begin + rates::kKernel + std::max(bytes / settings_.rates.memory, cost.arithmetic);
    default:
      return begin;
  }
}

double Clock::copy(double& engine, double ready, double bytes, double rate) const {
  engine = std::max(ready, engine) + settings_.latency + bytes / rate;
  return engine;
}

double Clock::now_ms() const {
  if (settings_.is_virtual) return host_ * 1e3;
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - made_)
      .count();
}

}  // namespace spillway::emulator
