// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "allocator/driver/handles.h"
#include "allocator/driver/span_log.h"
#include "allocator/lifetime/allocation_curve.h"
#include "allocator/plan/step_times.h"

#include <atomic>
#include <chrono>
#include <cstddef>
#include <optional>
#include <utility>
#include <vector>

namespace spillway {

/// What the spans of one device's recorded step say; nothing where they are not whole.
std::optional<StepTimes> step_times_of(std::vector<driver::Span> spans);

/// Measures what a plan for a step is made from, by the device's own events (driver::SpanLog).
/// Places are those of the device's curve.
///
/// Threads: safe. Stream: no host wait but in take().
class StepRecording {
 public:
  StepRecording(const driver::Device& device, const AllocationCurve& curve)
      : device_(device), curve_(curve) {}

  ~StepRecording() { stop(); }

  StepRecording(const StepRecording&) = delete;
  StepRecording& operator=(const StepRecording&) = delete;

  [[nodiscard]] bool on() const { return on_.load(std::memory_order_relaxed); }

  /// A step begins, or goes on, that computes on `stream`.
  void begin(driver::Stream stream);
  /// It follows a plan: only what it takes in all is measured.
  void follow();
  /// Call these where on(), when what they tell is over.
  void saved(std::size_t storage, driver::Stream stream);
  void wanted(std::size_t storage, driver::Stream stream);
  /// Its backward pass is over; nothing is measured any more.
  void end();
  /// It is not to be measured after all.
  void stop();

  /// The times of the step that ended, once. Blocks the host until the device has come to its end,
  /// but no longer than `most`.
  std::optional<StepTimes> take(std::chrono::milliseconds most);

  /// What a step took on the device.
  struct Taken {
    std::size_t steps_ago;  // 0: the step that ended last
    double seconds;
  };

  /// The steps that take() has found at their end, each once, in their order. A host that runs
  /// ahead of its device gets them steps later.
  std::vector<Taken> steps_taken();

 private:
  struct Step {
    driver::Stream stream;
    driver::SpanLog::Begun begun;
  };

  void keep_steps(const std::vector<driver::Span>& spans);
  void end_step();
  void forget_step();
  void mark(driver::Stream stream, driver::Span::Kind kind, std::size_t storage);
  void turn_on();
  void turn_off();

  const driver::Device device_;
  const AllocationCurve& curve_;
  std::atomic<bool> on_{false};
  std::atomic<bool> whole_{false};
  Mutex mutex_;
  std::optional<driver::Stream> stream_ SPILLWAY_GUARDED_BY(mutex_);
  std::optional<Step> step_ SPILLWAY_GUARDED_BY(mutex_);  // the running one
  std::uint64_t steps_ SPILLWAY_GUARDED_BY(mutex_) = 0;   // that have ended
  /// Number, as `steps_` counts, and seconds.
  std::vector<std::pair<std::uint64_t, double>> taken_ SPILLWAY_GUARDED_BY(mutex_);
};

}  // namespace spillway
