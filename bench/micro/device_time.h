// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "bench/micro/micro.h"

#include <algorithm>
#include <functional>
#include <span>
#include <vector>

namespace spillway::micro {

/// Work for one stream.
struct Lane {
  CUstream stream;
  std::function<Status()> submit;
};

/// When a lane's work began and ended on the device, from the moment that all lanes were released.
struct Span {
  Seconds begin{};
  Seconds end{};

  [[nodiscard]] Seconds length() const { return end - begin; }

  /// How much of this span lies inside `other`, from 0 to 1. Requires: length() > 0.
  [[nodiscard]] double share_inside(const Span& other) const {
    const Seconds common = std::min(end, other.end) - std::max(begin, other.begin);
    return std::max(common, Seconds{}) / length();
  }
};

/// From the first begin to the last end.
inline Seconds together(std::span<const Span> spans) {
  Span all = spans.front();
  for (const Span& each : spans) {
    all.begin = std::min(all.begin, each.begin);
    all.end = std::max(all.end, each.end);
  }
  return all.length();
}

/// Runs lanes concurrently and measures their times with events of the device. All lanes are
/// blocked by a value in host memory until everything is queued, so that the host's cost of
/// queueing is not in the times. Threads: confined. Ownership: owns its stream, events and flag;
/// borrows the probe.
class DeviceTime {
 public:
  /// Errors: kDriver, kNoDriver.
  static Result<std::unique_ptr<DeviceTime>> make(Probe& probe);
  ~DeviceTime();
  DeviceTime(const DeviceTime&) = delete;
  DeviceTime& operator=(const DeviceTime&) = delete;

  enum class Hold { kUntilQueued, kNot };

  /// The lanes' times, in their order. Stream: the host waits for all lanes. `kNot` is for work
  /// that makes the host wait, such as copies of pageable memory: held, it would never end.
  /// Requires: a stream for each lane. Errors: kDriver, and whatever a lane returns.
  Result<std::vector<Span>> measure_sync(std::span<const Lane> lanes,
                                         Hold hold = Hold::kUntilQueued);

 private:
  struct Events {
    CUevent begin = nullptr;
    CUevent end = nullptr;
  };

  DeviceTime(Probe& probe, OwnedStream gate) : probe_(probe), gate_(std::move(gate)) {}

  Status add_events(std::size_t count);
  Status queue(std::span<const Lane> lanes);
  Result<Seconds> since_go(CUevent event);

  Probe& probe_;
  OwnedStream gate_;
  unsigned* flag_ = nullptr;  // pinned, seen by the device; 1 lets the lanes run
  CUevent go_ = nullptr;
  std::vector<Events> events_;
};

}  // namespace spillway::micro
