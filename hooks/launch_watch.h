// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "allocator/base/mutex.h"
#include "allocator/base/result.h"
#include "allocator/driver/api.h"
#include "hooks/cupti_api.h"
#include "hooks/launch_recorder.h"

#include <atomic>
#include <vector>

namespace spillway::hooks {

/// Names and times the kernels that this process launches, through CUPTI's callbacks and our own
/// events, for a few steps. CUPTI has room for one subscriber: the code that profiles comes first,
/// and until the steps are over a profiler that starts finds CUPTI taken. Off, nothing is
/// registered. A launch costs two recorded events while it is on; nothing waits for the device.
///
/// Threads: safe. One for the process; never destroyed. A forked child has none.
class LaunchWatch {
 public:
  struct Options {
    int steps = 3;  // after as many `step_ended` CUPTI is released
  };

  LaunchWatch(const LaunchWatch&) = delete;
  LaunchWatch& operator=(const LaunchWatch&) = delete;

  static LaunchWatch& instance();

  [[nodiscard]] static bool on() { return on_.load(std::memory_order_relaxed); }

  /// What was not taken of the last watch is forgotten. Requires: `driver` lives indefinitely.
  /// Errors: kNotReady (a profiler has CUPTI or is to have it, this watch is on, a forked child),
  /// kInvalidArgument (steps), kDriver (CUPTI refuses). Nothing is subscribed then.
  Status start(const CuptiApi& cupti, const driver::Api& driver, const Options& options);

  /// CUPTI is released; kernels that were launched can still be taken.
  void stop();

  /// A step of training ends. Off, this is one relaxed load.
  void step_ended();

  /// Launches that have ended and were not taken yet, each stream's in order. Stream: no host wait.
  static std::vector<Launch> take();

  /// Since the last start.
  [[nodiscard]] LaunchCounts counts() const;

 private:
  LaunchWatch() = default;
  ~LaunchWatch() = default;

  static void CUPTIAPI called(void* watch,
                              CUpti_CallbackDomain domain,
                              CUpti_CallbackId id,
                              const void* data) noexcept;
  Status subscribe(const CuptiApi& cupti) SPILLWAY_REQUIRES(control_);
  void unsubscribe() SPILLWAY_REQUIRES(control_);

  static std::atomic<bool> on_;
  LaunchRecorder recorder_;
  Mutex control_;  // held where CUPTI is called, and never by a callback
  CuptiApi cupti_ SPILLWAY_GUARDED_BY(control_);
  CUpti_SubscriberHandle subscriber_ SPILLWAY_GUARDED_BY(control_) = nullptr;
  int steps_left_ SPILLWAY_GUARDED_BY(control_) = 0;
};

}  // namespace spillway::hooks
