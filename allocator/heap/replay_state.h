// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "allocator/base/bytes.h"
#include "allocator/heap/replay_region.h"
#include "allocator/heap/step_recorder.h"

#include <algorithm>
#include <atomic>
#include <cstdint>

namespace spillway {

/// State of recording and replaying steps. Guarded by the heap's lock, except for the atomics and
/// the recorder.
class ReplayState {
 public:
  /// A replay plan is dropped after this many diverging steps in a row.
  static constexpr int kMaxDiffering = 3;

  explicit ReplayState(bool is_on) : on(is_on) {}

  [[nodiscard]] bool stopped() const { return stopped_; }

  /// Disables replay plans for good.
  void stop() {
    stopped_ = true;
    recorder.set_enabled(false);
  }

  /// All memory is needed, including that of a replay plan. `may_plan`: there is a target, under
  /// which a replay plan needs no more than any step. A limited number of attempts then remains.
  void ran_out(bool may_plan) {
    if (!may_plan || ++times_out_ > kMaxTimesOut) stop();
  }

  /// The room of the next steps lacks that many bytes for the plan of the last two: records again,
  /// after twice as many steps as the last time.
  void lacks(Bytes bytes) {
    missing = bytes;
    wait_longer();
  }

  /// Records again, after twice as many steps as the last time.
  void wait_longer() {
    waits_ = next_waits_;
    next_waits_ = std::min(2 * next_waits_ + 1, kMostWaits);
    recorder.set_enabled(true);
  }

  void has_room() { next_waits_ = 0; }

  /// Whether the step that has ended is not to be recorded.
  bool waits() {
    if (waits_ == 0) return false;
    --waits_;
    recorder.set_enabled(true);
    return true;
  }

  /// Brings the heap's accounting up to date. Called before anything but a replayed block reads or
  /// changes it.
  void write_accounting() const {
    ReplayRegion* const latest = region.load(std::memory_order_acquire);
    if (latest == nullptr) return;
    const LightLock lock(latest->mutex);
    latest->write_accounting();
  }

  std::atomic<bool> on;                           // steps may be recorded and replayed
  std::atomic<ReplayRegion*> region{nullptr};     // of the latest replay plan
  std::atomic<std::uint64_t> double_buffered{0};  // bytes (PlacementAdvisor::double_buffered)
  StepRecorder recorder;
  int differing = 0;
  // Of the current replay plan:
  Bytes target;   // that it was made for; zero without one
  Bytes room;     // that was available to it
  Bytes missing;  // PlacementAdvisor::missing_for_plan

 private:
  static constexpr int kMaxTimesOut = 16;
  static constexpr int kMostWaits = 63;

  int times_out_ = 0;
  int waits_ = 0;  // steps
  int next_waits_ = 0;
  bool stopped_ = false;
};

}  // namespace spillway
