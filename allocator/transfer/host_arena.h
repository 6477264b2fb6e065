// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "allocator/base/bytes.h"
#include "allocator/base/mutex.h"
#include "allocator/base/result.h"
#include "allocator/driver/fence_set.h"
#include "allocator/transfer/pinned_pieces.h"

#include <memory>
#include <vector>

namespace spillway {

/// Pinned host memory for one storage. Move-only by convention: its owner returns each slot exactly
/// once.
struct HostSlot {
  std::byte* data = nullptr;
  Bytes size;
  /// Fences that must pass before these bytes are overwritten; the next writer waits for them on
  /// the device.
  driver::FenceSet fences;
};

struct HostArenaStats {
  Bytes registered;  // pinned bytes, including those being pinned in the background
  Bytes registered_peak;
  Bytes in_slots;       // in use, plus returned with a fence that has not been observed to pass
  Bytes in_slots_peak;  // peak bytes in use, over the steps that the arena is sized for
  std::uint64_t registrations = 0;
  Bytes huge;                        // of the pinned bytes: in preallocated huge pages (hugetlbfs)
  Bytes advised;                     // advised for transparent huge pages that the kernel supports
  Bytes on_node;                     // requested on `node`
  int node = kNoNode;                // the device's NUMA node
  PinnedPieces::Refusals refused{};  // by PinRefusal
};

/// Pinned host memory: large registered pieces, exact-size sub-allocation (64-byte aligned), best
/// fit, coalescing.
///
/// The first step grows the arena piece by piece; a background thread creates the next piece.
/// Registered bytes exceed those in slots by at most a quarter or 8 MiB, whichever is more. With a
/// limit, they exceed them by at most an eighth of it. end_step() then sizes the arena for the
/// recent steps.
///
/// A slot returned with a fence is reused only together with that fence. The choice of a slot
/// depends on sizes alone, never on timing. A step that repeats therefore gets the same slots, and
/// the arena stops growing.
///
/// Threads: safe.
/// Ownership: owns the pieces; the destructor (tests only) requires that no slot is in use.
class HostArena {
 public:
  HostArena(const driver::Device& device, const PinnedOptions& options);

  /// `limit`: maximum pinned bytes, zero for none. Creates no pieces in the background.
  HostArena(const driver::Device& device, Bytes limit);
  ~HostArena();
  HostArena(const HostArena&) = delete;
  HostArena& operator=(const HostArena&) = delete;

  /// Stream: never blocks on the device; may register a new piece (counted).
  /// Errors: kOutOfHostMemory at the limit or if the machine refuses; kDriver.
  Result<HostSlot> take(Bytes size);

  /// Returns a slot; `last` is the last copy that reads or writes it.
  void give(HostSlot slot, driver::Fence last);

  /// Ends a step of that shape (RecentPeaks::add), and sizes the arena for the largest peak of the
  /// recent steps. If no slot is in use and the pieces are too small, several, or too large, it
  /// registers one piece of that size instead of all others. The pieces are too large at
  ///   - steps of one shape: more than 1.03 x that peak, rounded up to a page;
  ///   - steps of several shapes: more than 1.1 x that peak. The new piece is then a sixteenth
  ///     larger than the peak, so that slowly growing lengths register seldom.
  /// If slots are in use, unneeded free pieces are unregistered. A refused request counts towards
  /// its step's peak. If the machine refuses the piece, the arena keeps what it can have. It
  /// retries after RecentPeaks::kSteps steps or for a larger peak. Otherwise nothing happens.
  /// Stream: may block the host if the arena is resized (counted in driver::Counters::host_syncs).
  void end_step(std::uint64_t shape);

  /// Resizes as end_step() does within a step, for the recent steps and the running one. May be
  /// called at any time; never blocks. Returns true when the registered bytes are at most those
  /// that end_step() allows. From the first success on, the arena grows by little more than each
  /// request.
  bool trim();

  /// As trim(), but waits if only fences prevent the resize.
  /// Stream: may block the host (counted in driver::Counters::host_syncs).
  bool trim_sync();

  [[nodiscard]] HostArenaStats stats() const;
  /// Drops the recent steps; the running step's peak restarts at the present bytes in slots.
  void reset_peak();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace spillway
