// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "allocator/driver/handles.h"
#include "allocator/driver/span_log.h"
#include "allocator/lifetime/allocation_curve.h"
#include "allocator/plan/step_times.h"

#include <atomic>
#include <chrono>
#include <cstddef>
#include <deque>
#include <optional>
#include <utility>
#include <vector>

namespace spillway {

/// The times of one device's recorded step from its spans; none if the spans are incomplete.
std::optional<StepTimes> step_times_of(std::vector<driver::Span> spans);

/// Takes the spans of the first ended step out of those of consecutive ones, and drops what
/// precedes it. Copies belong to the step in which they began. Empty if no step has ended.
std::vector<driver::Span> take_step(std::vector<driver::Span>& spans);

/// Measures the times of a step for planning, by the device's events (driver::SpanLog). Event
/// indices are those of the device's curve.
///
/// Threads: safe. Stream: no host wait except in take().
class StepRecording {
 public:
  StepRecording(const driver::Device& device, const AllocationCurve& curve)
      : device_(device), curve_(curve) {}

  ~StepRecording() { stop(); }

  StepRecording(const StepRecording&) = delete;
  StepRecording& operator=(const StepRecording&) = delete;

  [[nodiscard]] bool on() const { return on_.load(std::memory_order_relaxed); }

  /// Begins or continues a step that computes on `stream`.
  void begin(driver::Stream stream);
  /// The step follows a plan: only its duration is measured.
  void follow();
  /// A storage was saved, or first used in the backward pass. Called while on(), after the work
  /// that the event ends was submitted to `stream`.
  void saved(std::size_t storage, driver::Stream stream);
  void used(std::size_t storage, driver::Stream stream);
  /// Ends the backward pass and the measurement.
  void end();
  /// Cancels the measurement.
  void stop();

  /// The times of a measured step.
  struct Measured {
    std::size_t steps_ago;  // 0: the step that ended last
    StepTimes times;
  };

  /// Returns the measured steps that the device has finished, each once, in order. If the host runs
  /// ahead of the device, they appear steps later. With `waits`, blocks the host until the device
  /// has finished the last step, if that was measured, for at most `most`. Where many measured
  /// steps are not finished, likewise until it has finished the oldest one.
  std::vector<Measured> take(bool waits, std::chrono::milliseconds most);

  /// The duration of a step on the device.
  struct Duration {
    std::size_t steps_ago;  // as of Measured
    double seconds;
  };

  /// Likewise for the durations of all steps, as far as take() has found their ends.
  std::vector<Duration> take_durations();

 private:
  struct Step {
    driver::Stream stream;
    driver::SpanLog::Begun begun;
  };

  void keep_spans(const std::vector<driver::Span>& spans);
  void end_step();
  void forget_step();
  void mark(driver::Stream stream, driver::Span::Kind kind, std::size_t storage);
  void turn_on();
  void turn_off();

  const driver::Device device_;
  const AllocationCurve& curve_;
  std::atomic<bool> on_{false};
  Mutex mutex_;
  std::optional<driver::Stream> stream_ SPILLWAY_GUARDED_BY(mutex_);
  std::optional<Step> step_ SPILLWAY_GUARDED_BY(mutex_);  // the running step
  std::uint64_t steps_ SPILLWAY_GUARDED_BY(mutex_) = 0;   // number of ended steps
  // Numbers, as in `steps_`, of the measured steps that were not taken yet.
  std::deque<std::uint64_t> measured_ SPILLWAY_GUARDED_BY(mutex_);
  std::vector<driver::Span> spans_ SPILLWAY_GUARDED_BY(mutex_);  // of these and the running step
  /// Step number, and seconds.
  std::vector<std::pair<std::uint64_t, double>> taken_ SPILLWAY_GUARDED_BY(mutex_);
};

}  // namespace spillway
