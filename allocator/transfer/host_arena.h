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

/// Pinned host memory for one storage. Move-only by convention of its owner: give each slot back
/// exactly once.
struct HostSlot {
  std::byte* data = nullptr;
  Bytes size;
  /// What must pass before these bytes may be overwritten; the code that writes into the slot waits
  /// for them on the device.
  driver::FenceSet fences;
};

struct HostArenaStats {
  Bytes registered;  // pinned bytes now, those that are being pinned in the background included
  Bytes registered_peak;
  Bytes in_slots;       // handed out now, plus released with a fence that has not been seen to pass
  Bytes in_slots_peak;  // most bytes handed out at once, in the steps that the arena is sized for
  std::uint64_t registrations = 0;
  Bytes huge;          // of the pinned bytes: in huge pages kept for programs that ask
  Bytes advised;       // in transparent huge pages, as far as the kernel had them
  Bytes on_node;       // asked for on `node`
  int node = kNoNode;  // the device's NUMA node
  PinnedPieces::Refusals refused{};  // by PinRefusal
};

/// Pinned host memory: large registered pieces, exact-size sub-allocation (64-byte aligned), best
/// fit, coalescing.
///
/// The first step grows the arena piece by piece, with the next piece made in the background. The
/// registered bytes beyond those in slots are at most a quarter of them or 8 MiB, whichever is more
/// (and at most an eighth of a limit). end_step() then sizes the arena for the recent steps.
///
/// A slot that is returned with a fence is handed out again only together with that fence. Which
/// slot is handed out depends on sizes alone, never on timing, so that a step that repeats finds
/// the same slots and the arena stops growing.
///
/// Threads: safe. Ownership: owns the pieces; the destructor (tests only) requires that no slot is
/// out.
class HostArena {
 public:
  HostArena(const driver::Device& device, const PinnedOptions& options);

  /// `limit`: most pinned bytes, zero for none. Nothing is made in the background.
  HostArena(const driver::Device& device, Bytes limit);
  ~HostArena();
  HostArena(const HostArena&) = delete;
  HostArena& operator=(const HostArena&) = delete;

  /// Stream: never blocks on the device; may register a new piece (counted). Errors:
  /// kOutOfHostMemory at the limit or where the machine refuses; kDriver.
  Result<HostSlot> take(Bytes size);

  /// Gives a slot back; `last` is the last copy that reads or writes it.
  void give(HostSlot slot, driver::Fence last);

  /// Ends a step whose storages have that shape (RecentPeaks::add), and sizes the arena for the
  /// largest peak of the recent steps. Registers one piece of that size in place of all others
  /// where no slot is out and the pieces are too small, several, or too large:
  ///   - steps of one shape: more than 1.03 x that peak, rounded up to a page;
  ///   - steps of several shapes: more than 1.1 x that peak. The new piece is a sixteenth larger
  ///     than the peak then, so that lengths that grow slowly register seldom.
  /// With slots out, pieces that are free and not needed are unregistered. A request that was
  /// refused counts as part of its step's peak. Where the machine refuses the piece, the arena
  /// keeps what it can have, and tries again after RecentPeaks::kSteps steps or for a larger peak.
  /// Otherwise nothing happens.
  /// Stream: may block the host where the arena is resized (counted in
  /// driver::Counters::host_syncs).
  void end_step(std::uint64_t shape);

  /// Resizes as end_step() does, in the middle of a step, for the recent steps and the running one.
  /// May be called at any time; does what it can without blocking. Returns true when the registered
  /// bytes are at most what end_step() allows. From the first success on the arena grows by little
  /// more than what is asked for.
  bool trim();

  /// As trim(), but where only fences are in the way it waits for them first.
  /// Stream: may block the host (counted in driver::Counters::host_syncs).
  bool trim_sync();

  [[nodiscard]] HostArenaStats stats() const;
  /// Drops the recent steps; the running step's peak is what is in slots now.
  void reset_peak();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace spillway
