// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "allocator/base/bytes.h"
#include "allocator/base/mutex.h"
#include "allocator/base/result.h"
#include "allocator/driver/fence_set.h"
#include "allocator/transfer/pinned_pieces.h"

#include <memory>
#include <utility>

namespace spillway {

class HostArena;

/// Pinned host memory to copy from or to. Borrowed.
struct HostBytes {
  std::byte* data = nullptr;
  Bytes size;
};

/// Pinned host memory for one storage, from HostArena::take(). The destructor returns it to the
/// arena together with its fences. A slot may end as soon as its last copy has been submitted.
///
/// Threads: confined. Ownership: owns the memory; borrows the arena.
class HostSlot {
 public:
  HostSlot() = default;
  HostSlot(const HostSlot&) = delete;
  HostSlot& operator=(const HostSlot&) = delete;

  HostSlot(HostSlot&& other) noexcept
      : fences(std::move(other.fences)),
        arena_(std::exchange(other.arena_, nullptr)),
        bytes_(std::exchange(other.bytes_, {})) {}

  HostSlot& operator=(HostSlot&& other) noexcept;

  ~HostSlot() {
    if (arena_ != nullptr) release();
  }

  [[nodiscard]] HostBytes bytes() const { return bytes_; }

  [[nodiscard]] std::byte* data() const { return bytes_.data; }

  [[nodiscard]] Bytes size() const { return bytes_.size; }

  /// Fences that must pass before these bytes are overwritten; the next writer waits for them on
  /// the device. The user adds the fence of each copy that reads or writes the slot.
  driver::FenceSet fences;

 private:
  friend class HostArena;

  HostSlot(HostArena& arena, HostBytes bytes, driver::FenceSet before)
      : fences(std::move(before)), arena_(&arena), bytes_(bytes) {}

  void release();

  HostArena* arena_ = nullptr;  // null: empty
  HostBytes bytes_;
};

struct HostArenaStats {
  Bytes registered;  // pinned bytes, including those being pinned in the background
  Bytes registered_peak;
  Bytes in_slots;       // bytes of slots in use, plus returned slots that a copy may still use
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
/// The first step grows the arena piece by piece; a background thread creates the next piece. A new
/// piece is larger than its request only if the surplus stays small. The surplus (registered minus
/// used bytes) is at most a quarter of the used bytes, or 8 MiB if that is more. With a limit,
/// it is also at most an eighth of the limit. end_step() then sizes the arena for the recent steps.
///
/// take() may return bytes whose fences have not passed. They are then in HostSlot::fences, and the
/// next copy into the slot waits for them. The choice of a slot depends on sizes alone, never on
/// timing. A step that repeats therefore gets the same slots, and the arena stops growing.
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

  /// Ends a step, and sizes the arena for the largest peak of the recent steps. `shape`: equal for
  /// steps that save storages of the same sizes (RecentPeaks::add). If no slot is in use and the
  /// pieces are too small, several, or too large, one piece of that size replaces all pieces. The
  /// pieces are too large if they exceed
  ///   - steps of one shape: more than 1.03 x that peak, rounded up to a page;
  ///   - steps of several shapes: more than 1.1 x that peak. The new piece is then a sixteenth
  ///     larger than the peak, so that slowly growing sequence lengths seldom need a new one.
  /// If slots are in use, unneeded free pieces are unregistered. A failed take() counts towards its
  /// step's peak. If the machine refuses the piece, the arena registers a smaller one: without the
  /// sixteenth, then of the former size. If all fail, the next step grows the arena on demand. The
  /// full size is tried again after RecentPeaks::kSteps steps or for a larger peak.
  /// Stream: may block the host if the arena is resized (counted in driver::Counters::host_syncs).
  void end_step(std::uint64_t shape);

  /// Resizes as end_step() does, but during a step: for the recent steps and the running one. It
  /// can be called at any time and never blocks. Returns true if the arena is now no larger than
  /// end_step() would allow; false if slots in use or pending fences prevent that. After a success
  /// the arena grows by small pieces, at first a 64th of its size, until it has doubled.
  bool trim();

  /// As trim(), but waits if only fences prevent the resize.
  /// Stream: may block the host (counted in driver::Counters::host_syncs).
  bool trim_sync();

  [[nodiscard]] HostArenaStats stats() const;
  /// Drops the recent steps; the running step's peak restarts at the present bytes in slots.
  void reset_peak();

 private:
  friend class HostSlot;
  void give(HostBytes bytes, driver::FenceSet fences);

  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace spillway
