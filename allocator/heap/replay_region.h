// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "allocator/heap/region.h"
#include "allocator/heap/replay_cursor.h"
#include "allocator/heap/replay_plan.h"

#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace spillway {

/// A heap region whose blocks, all of one stream, get the addresses of a replay plan. It checks for
/// each request that the step matches the replay plan and that the address is free. The heap serves
/// a request that differs, or whose address is not free. A step may lack requests of the plan;
/// after many in a row that differ the heap serves the rest of the step. A block keeps its address
/// until it is freed. If a copy or another stream still uses it then, the next block at that
/// address waits for that use on the device. An address range may be a view of scattered pages
/// (Backing::view); it lies after the addresses at which the pages themselves are mapped.
///
/// While a step of a plain replay plan (ReplayPlan::plain) matches exactly, frees included, only a
/// cursor advances (ReplayCursor). Blocks and accounting are updated from it when they are read.
/// After a mismatch, or a change to the blocks by another caller, each further request is looked up
/// and recorded individually. The step still counts as replayed as long as its requests match.
///
/// Its blocks are records of the replay plan, not elements of a list: evict marks them and releases
/// nothing. It updates the heap's accounting for its blocks. Threads and ownership: as
/// Region.
class ReplayRegion final : public Region {
 public:
  ReplayRegion(const RegionParts& parts, RegionKey key, Range range)
      : Region(parts, key, range), accounting_(parts.accounting) {}

  /// Replays `plan` from the next request on. `room`: maps at most this much of its memory now, and
  /// the rest when a request needs it (lacks_memory). None: maps all of it now.
  /// Requires: idle().
  /// Errors: as Backing::map if `room` is none; there is no replay plan then.
  Status adopt(const ReplayPlan& plan, std::optional<Bytes> room) SPILLWAY_REQUIRES(mutex);

  /// Whether there is a replay plan.
  [[nodiscard]] bool has_plan() const SPILLWAY_REQUIRES(mutex) { return has_plan_; }

  /// Whether all memory of the replay plan was mapped when the running step began.
  [[nodiscard]] bool mapped() const SPILLWAY_REQUIRES(mutex) { return mapped_; }

  /// Whether there is no replay plan and no block of an earlier one.
  [[nodiscard]] bool idle() const SPILLWAY_REQUIRES(mutex) { return requests_.empty(); }

  /// Whether a block is allocated or still used by other streams.
  [[nodiscard]] bool in_use() const SPILLWAY_REQUIRES(mutex) { return !taken_.empty(); }

  /// Whether the running step has diverged from the replay plan: the heap serves the rest of it.
  [[nodiscard]] bool differs() const SPILLWAY_REQUIRES(mutex) { return differs_; }

  /// Whether the running step has differed from the replay plan in more than a small part.
  [[nodiscard]] bool differs_much() const SPILLWAY_REQUIRES(mutex);

  /// Bytes to map before take can serve this request. None if take can serve it now or will not
  /// serve it.
  [[nodiscard]] std::optional<Bytes> lacks_memory(Bytes requested) const SPILLWAY_REQUIRES(mutex);

  /// Maps them.
  /// Errors: as Backing::map; memory that was mapped before the error stays.
  /// Locks: the caller holds the heap's lock.
  Status map_next(Bytes requested) SPILLWAY_REQUIRES(mutex);

  /// Leaves the next request, which lacks memory, to the heap; after many in a row the rest of the
  /// step.
  void leave_out(Bytes requested) SPILLWAY_REQUIRES(mutex);

  /// Allocates the next request of the step and returns its address. Null if the heap must serve
  /// the request or must map memory first.
  /// Stream: usable at once; its stream waits for remaining uses of the memory.
  driver::DevicePtr take(Bytes requested, TagId tag) SPILLWAY_REQUIRES(mutex) {
    const driver::DevicePtr at = cursor_.take(requested, tag);
    return at != driver::DevicePtr{} ? at : take_checked(requested, tag);
  }

  /// Frees a block. Returns false if it is not allocated, or is pinned.
  bool release(driver::DevicePtr at) SPILLWAY_REQUIRES(mutex) {
    return cursor_.give(at) || release_checked(at);
  }

  /// take for a request that is exactly the next event of the replay plan. Null for any other
  /// request, and if another thread is using the cursor. Threads: takes no lock.
  driver::DevicePtr take_next(driver::Stream stream, PoolId pool, Bytes requested, TagId tag) {
    if (stream.handle() != key().stream || pool != PoolId::kShared) return {};
    return cursor_.take(requested, tag);
  }

  /// release if the free is exactly the next event of the replay plan, as take_next.
  bool release_next(driver::DevicePtr at) { return range().contains(at) && cursor_.give(at); }

  /// Ends the step. Returns false if it differed from the replay plan in more than a small part.
  bool end_step() SPILLWAY_REQUIRES(mutex);

  /// Brings the heap's accounting up to date. Callers that read or change the accounting call it
  /// first, so that peaks are exact.
  void write_accounting() SPILLWAY_REQUIRES(mutex);

  void show() override SPILLWAY_REQUIRES(mutex);
  void open() override SPILLWAY_REQUIRES(mutex);
  [[nodiscard]] const Block* first() const override SPILLWAY_REQUIRES(mutex);
  void read(HeapStats& stats) const override SPILLWAY_REQUIRES(mutex);
  /// Ends the replay plan and releases all chunks without a block.
  Bytes trim() override SPILLWAY_REQUIRES(mutex);
  Bytes evict(const std::vector<Block*>& blocks) override SPILLWAY_REQUIRES(mutex);
  Result<std::vector<Range>> back(std::vector<Block*>& blocks) override SPILLWAY_REQUIRES(mutex);
  void unback(const std::vector<Block*>& blocks, const std::vector<Range>& ranges) override
      SPILLWAY_REQUIRES(mutex);
  void revive(const std::vector<Block*>& blocks) override SPILLWAY_REQUIRES(mutex);
  [[nodiscard]] std::string check() const override SPILLWAY_REQUIRES(mutex);

 private:
  /// A request and its block. kGap: without an address; kFree; kLive; kHole: freed, but still used
  /// by others.
  struct Request {
    Block block;
    Bytes requested;
    bool placed = false;
    bool viewed = false;  // its addresses are a view of scattered pages
    /// Its memory: parts_ from `part` until `part_end` (exclusive).
    std::uint32_t part = 0;
    std::uint32_t part_end = 0;
  };

  /// Memory that a block occupies.
  struct Taken {
    Range part;
    Block* block;
  };

  driver::DevicePtr take_checked(Bytes requested, TagId tag) SPILLWAY_REQUIRES(mutex);
  bool release_checked(driver::DevicePtr at) SPILLWAY_REQUIRES(mutex);
  void hand_out(Request& request, TagId tag) SPILLWAY_REQUIRES(mutex);
  [[nodiscard]] std::optional<std::size_t> planned(Bytes requested) const SPILLWAY_REQUIRES(mutex);
  void pass_to(std::size_t index) SPILLWAY_REQUIRES(mutex);
  void fall_back() SPILLWAY_REQUIRES(mutex);
  void miss(Bytes requested) SPILLWAY_REQUIRES(mutex);
  void differ(Bytes size) SPILLWAY_REQUIRES(mutex);
  void release_addresses(Block* block) SPILLWAY_REQUIRES(mutex);
  void begin_step() SPILLWAY_REQUIRES(mutex);
  void free_passed() SPILLWAY_REQUIRES(mutex);
  void take_back(Block* block) SPILLWAY_REQUIRES(mutex);
  void write_blocks() SPILLWAY_REQUIRES(mutex);
  void end_cursor_step() SPILLWAY_REQUIRES(mutex);
  void set_cursor_events(const StepSequence& sequence) SPILLWAY_REQUIRES(mutex);
  void place_requests(const ReplayPlan& plan) SPILLWAY_REQUIRES(mutex);
  void cut_evenly(Bytes size) SPILLWAY_REQUIRES(mutex);
  void add_parts(const std::vector<std::uint32_t>& pages) SPILLWAY_REQUIRES(mutex);
  bool vacate(const Request& request) SPILLWAY_REQUIRES(mutex);
  [[nodiscard]] std::vector<Range> unmapped(const Request& request) const SPILLWAY_REQUIRES(mutex);
  [[nodiscard]] bool ready(const Request& request) const SPILLWAY_REQUIRES(mutex);
  [[nodiscard]] bool all_ready() const SPILLWAY_REQUIRES(mutex);

  [[nodiscard]] std::span<const Range> parts_of(const Request& request) const
      SPILLWAY_REQUIRES(mutex) {
    return std::span(parts_).subspan(request.part, request.part_end - request.part);
  }

  [[nodiscard]] std::vector<Block*> blocks_in_use() const SPILLWAY_REQUIRES(mutex);
  [[nodiscard]] bool in_use(Range memory) const SPILLWAY_REQUIRES(mutex);
  [[nodiscard]] bool has_free_memory() const SPILLWAY_REQUIRES(mutex);
  std::vector<Range> end_views() SPILLWAY_REQUIRES(mutex);

  Accounting& accounting_;  // for whole steps
  ReplayCursor cursor_;
  StepTotals whole_ SPILLWAY_GUARDED_BY(mutex);        // of a step that matches
  HeapStats whole_counts_ SPILLWAY_GUARDED_BY(mutex);  // likewise
  mutable std::vector<Request> requests_ SPILLWAY_GUARDED_BY(mutex);
  mutable std::deque<Block> between_
      SPILLWAY_GUARDED_BY(mutex);  // free memory and gaps, for first()
  std::vector<Range> parts_ SPILLWAY_GUARDED_BY(mutex);
  std::vector<driver::DevicePtr> cuts_ SPILLWAY_GUARDED_BY(mutex);  // that no chunk may cross
  /// Memory of blocks that are allocated or still used, in address order, without overlaps.
  std::vector<Taken> taken_ SPILLWAY_GUARDED_BY(mutex);
  Bytes page_ SPILLWAY_GUARDED_BY(mutex);  // as ReplayPlan
  std::size_t next_ SPILLWAY_GUARDED_BY(mutex) = 0;
  Bytes allocated_ SPILLWAY_GUARDED_BY(mutex);
  bool has_plan_ SPILLWAY_GUARDED_BY(mutex) = false;
  bool plain_ SPILLWAY_GUARDED_BY(mutex) = false;   // as ReplayPlan
  bool mapped_ SPILLWAY_GUARDED_BY(mutex) = false;  // all memory of the replay plan
  Bytes total_ SPILLWAY_GUARDED_BY(mutex);          // of all requests of the replay plan
  // Of the running step:
  bool differs_ SPILLWAY_GUARDED_BY(mutex) = false;  // it has diverged
  Bytes differing_ SPILLWAY_GUARDED_BY(mutex);       // blocks by which it differs
  Bytes last_missed_ SPILLWAY_GUARDED_BY(mutex);     // the latest request not in the plan
  int missed_in_a_row_ SPILLWAY_GUARDED_BY(mutex) = 0;
};

}  // namespace spillway
