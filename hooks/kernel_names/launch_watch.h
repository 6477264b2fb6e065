// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "allocator/base/mutex.h"
#include "allocator/base/result.h"
#include "allocator/driver/api.h"
#include "hooks/kernel_names/cupti_api.h"
#include "hooks/kernel_names/launch_recorder.h"

#include <atomic>
#include <vector>

namespace spillway::hooks {

/// Names and times the kernels that this process launches, through CUPTI's callbacks and our own
/// events, for a few steps. CUPTI supports one subscriber. A profiler that runs already has
/// priority; one that starts before the steps are over finds CUPTI in use. While off, nothing is
/// registered. While on, a launch costs two recorded events, and the device is not waited for.
///
/// Threads: safe. One per process; never destroyed. Inactive in a forked child.
class LaunchWatch {
 public:
  struct Options {
    int steps = 3;  // CUPTI is released after this many calls of `step_ended`
  };

  LaunchWatch(const LaunchWatch&) = delete;
  LaunchWatch& operator=(const LaunchWatch&) = delete;

  static LaunchWatch& instance();

  [[nodiscard]] static bool on() { return on_.load(std::memory_order_relaxed); }

  /// Starts a watch and drops the untaken launches of the previous one.
  /// Requires: `driver` outlives the process.
  /// Errors: kNotReady (a profiler uses or will use CUPTI, this watch is on, a forked child),
  /// kInvalidArgument (steps), kDriver (CUPTI refuses). Nothing is subscribed then.
  Status start(const CuptiApi& cupti, const driver::Api& driver, const Options& options);

  /// Releases CUPTI; launched kernels can still be taken.
  void stop();

  /// Ends a training step. While off, this is one relaxed load.
  void step_ended();

  /// Launches that have ended and were not taken yet, in order per stream. Stream: no host wait.
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
  Mutex control_;  // held during calls of CUPTI, and never by a callback
  CuptiApi cupti_ SPILLWAY_GUARDED_BY(control_);
  CUpti_SubscriberHandle subscriber_ SPILLWAY_GUARDED_BY(control_) = nullptr;
  int steps_left_ SPILLWAY_GUARDED_BY(control_) = 0;
};

}  // namespace spillway::hooks
