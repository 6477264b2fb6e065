// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "allocator/base/bytes.h"
#include "allocator/base/mutex.h"

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

namespace spillway {

enum class StepPhase : std::uint8_t {
  kForward,    // saved tensors are made
  kBackward,   // and used
  kOptimizer,  // after the backward pass, up to the end of the optimizer's step
  kOutside,    // between steps: evaluation, or a backward pass that no optimizer's step followed
  kCount,
};

/// The peaks of one device by phase of the step: of what was allocated, and of that together with
/// what was on the host only, which is what would have been allocated without offloading.
/// They are of allocations; between the first saved tensor of the process and now.
///
/// Threads: safe. Off, it costs one relaxed load for each allocation.
class StepPeaks {
 public:
  struct Peak {
    Bytes allocated;
    Bytes largest;  // the largest of the last few allocations that led to it
    Bytes without;  // the largest sum of allocated and offloaded bytes, at its own time
  };

  using Peaks = std::array<Peak, static_cast<std::size_t>(StepPhase::kCount)>;

  [[nodiscard]] bool on() const { return on_.load(std::memory_order_relaxed); }

  /// The phase of what is allocated from now on. A backward pass that is followed by a forward
  /// pass was none of the last micro-batch: what was allocated between them counts as outside.
  void begin(StepPhase phase);

  /// A step without a backward pass has ended: what it allocated counts as outside.
  void abandon();

  /// `size` bytes were allocated; now `live` bytes are, and `offloaded` are on the host only.
  void allocated(Bytes size, Bytes live, Bytes offloaded);

  /// An optimizer's step ends the step. Returns the peaks of all steps so far, and of what came
  /// between them up to the end of the step before this one.
  Peaks end_step();

  /// The same of the last steps: at least kRecentSteps, at most twice as many.
  Peaks recent();

  /// Whether each step is followed.
  void follow_all(bool all);

  /// Starts over, as at the first step: what was allocated so far does not count.
  void forget();

 private:
  static constexpr std::size_t kRecent = 4;
  /// All of the first steps are followed, later of some only the time between them.
  static constexpr std::uint64_t kFollowed = 8;
  static constexpr std::uint64_t kEach = 16;
  static constexpr std::uint64_t kRecentSteps = kEach;

  void add(StepPhase from, StepPhase to) SPILLWAY_REQUIRES(mutex_);

  std::atomic<bool> on_{false};
  LightMutex mutex_;
  StepPhase phase_ SPILLWAY_GUARDED_BY(mutex_) = StepPhase::kOutside;
  std::uint64_t steps_ SPILLWAY_GUARDED_BY(mutex_) = 0;
  std::array<Bytes, kRecent> recent_ SPILLWAY_GUARDED_BY(mutex_){};
  std::size_t next_ SPILLWAY_GUARDED_BY(mutex_) = 0;
  Peaks running_ SPILLWAY_GUARDED_BY(mutex_){};
  Peaks all_ SPILLWAY_GUARDED_BY(mutex_){};
  bool follow_all_ SPILLWAY_GUARDED_BY(mutex_) = false;
  // Of the steps of this generation, and of the one before.
  Peaks young_ SPILLWAY_GUARDED_BY(mutex_){};
  Peaks old_ SPILLWAY_GUARDED_BY(mutex_){};
  std::uint64_t young_steps_ SPILLWAY_GUARDED_BY(mutex_) = 0;
};

}  // namespace spillway
