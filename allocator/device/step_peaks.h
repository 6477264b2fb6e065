// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "allocator/base/bytes.h"
#include "allocator/base/mutex.h"
#include "allocator/device/step_phase.h"

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

namespace spillway {

/// The peaks of one device by phase of the step, from the process's first saved tensor on. It
/// tracks allocated bytes, and the sum of allocated and offloaded bytes, which approximates the
/// allocation without offloading. Peaks are updated at allocations.
///
/// Threads: safe. While off, it costs one relaxed load per allocation.
class StepPeaks {
 public:
  struct Peak {
    Bytes allocated;
    Bytes largest;  // the largest of the last few allocations before it
    Bytes without;  // peak of allocated plus offloaded bytes, at its own time
  };

  using Peaks = std::array<Peak, static_cast<std::size_t>(StepPhase::kCount)>;

  [[nodiscard]] bool on() const { return on_.load(std::memory_order_relaxed); }

  /// Sets the phase of later allocations. If a forward pass follows a backward pass, that was not
  /// the last micro-batch. The allocations between them count as outside.
  void begin(StepPhase phase);

  /// Ends a step without a backward pass; its allocations count as outside.
  void abandon();

  /// Reports an allocation of `size` bytes. Afterwards `allocated` bytes are allocated and
  /// `offloaded` bytes are on the host only.
  void allocated(Bytes size, Bytes allocated, Bytes offloaded);

  /// Ends the step after its optimizer step. Returns the peaks of all steps so far, and of the time
  /// between them up to the end of the previous step.
  Peaks end_step();

  /// Likewise for recent steps: at least kRecentSteps, at most twice as many.
  Peaks recent();

  /// Whether every step is tracked.
  void follow_all(bool all);

  /// Starts over as at the first step; earlier allocations do not count.
  void forget();

 private:
  static constexpr std::size_t kRecent = 4;
  /// The first steps are tracked completely; of later ones some only between steps.
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
  // Of the steps of this generation, and of the previous one.
  Peaks young_ SPILLWAY_GUARDED_BY(mutex_){};
  Peaks old_ SPILLWAY_GUARDED_BY(mutex_){};
  std::uint64_t young_steps_ SPILLWAY_GUARDED_BY(mutex_) = 0;
};

}  // namespace spillway
