// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "allocator/heap/course.h"
#include "allocator/heap/region.h"
#include "allocator/heap/step_plan.h"

#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace spillway {

/// Blocks of one stream at the places of a plan. Request by request it is checked that the step is
/// the one that was planned and that what had the place before is free; the first difference ends
/// the plan for the rest of that step. A block keeps its place until it is freed; where a copy or
/// another stream uses it then, the code that gets the place next waits for that. A place may be a
/// view of pages that lie apart (Backing::view), behind the addresses where those are mapped
/// themselves.
///
/// As long as a step of a plain plan does exactly what was planned, frees included, only how far it
/// has come is kept (ReplayCursor): blocks and accounting are brought up to that when something
/// looks at them. Where it does anything else, or something changes its blocks, each of its further
/// requests is looked up and written down; it is the planned one still as long as its requests are.
///
/// Its blocks are records of the plan, not parts of a list: evict marks them and gives nothing
/// back. Keeps the heap's accounting of its blocks. Threads and ownership: as Region.
class PlannedRegion final : public Region {
 public:
  PlannedRegion(const RegionParts& parts, RegionKey key, Range range)
      : Region(parts, key, range), accounting_(parts.accounting) {}

  /// Follows `plan` from the next request on. `room`: no more of its memory is mapped at once, and
  /// the rest where a request needs it (lacks_memory); none: all of it. Requires: idle(). Errors:
  /// as Backing::map, without `room`; there is no plan then.
  Status adopt(const StepPlan& plan, std::optional<Bytes> room) SPILLWAY_REQUIRES(mutex);

  /// Whether there is a plan.
  [[nodiscard]] bool planned() const SPILLWAY_REQUIRES(mutex) { return planned_; }

  /// Whether all memory of the plan was mapped when the running step began.
  [[nodiscard]] bool mapped() const SPILLWAY_REQUIRES(mutex) { return mapped_; }

  /// Whether neither a plan nor anything of an earlier one is here.
  [[nodiscard]] bool idle() const SPILLWAY_REQUIRES(mutex) { return requests_.empty(); }

  /// Whether a block is live or still used by other streams.
  [[nodiscard]] bool in_use() const SPILLWAY_REQUIRES(mutex) { return !taken_.empty(); }

  /// Whether the running step has done anything but what was planned.
  [[nodiscard]] bool differs() const SPILLWAY_REQUIRES(mutex) { return differs_; }

  /// The bytes that must be mapped before take gives this request its place; none where it can do
  /// so now, or will not.
  [[nodiscard]] std::optional<Bytes> lacks_memory(Bytes requested) const SPILLWAY_REQUIRES(mutex);

  /// Maps them. Errors: as Backing::map; what is mapped by then stays. Locks: the heap's is held.
  Status map_next(Bytes requested) SPILLWAY_REQUIRES(mutex);

  /// The next request is not served here, nor are those after it in its step.
  void fall_back() SPILLWAY_REQUIRES(mutex);

  /// The next request of the step: where its block is, which is live then; null where the heap is
  /// to serve it, or to map memory first. Stream: usable at once; the region's stream waits for
  /// what still uses the place.
  driver::DevicePtr take(Bytes requested, TagId tag) SPILLWAY_REQUIRES(mutex) {
    const driver::DevicePtr at = course_.take(requested, tag);
    return at != driver::DevicePtr{} ? at : take_checked(requested, tag);
  }

  /// The owner of a block gives it back. False where it is not live, or held.
  bool release(driver::DevicePtr at) SPILLWAY_REQUIRES(mutex) {
    return course_.give(at) || release_checked(at);
  }

  /// take for a request that is exactly the next event that was planned; null for any other, and
  /// where another thread is at it. Threads: takes no lock.
  driver::DevicePtr take_next(driver::Stream stream, PoolId pool, Bytes requested, TagId tag) {
    if (stream.handle() != key().stream || pool != PoolId::kShared) return {};
    return course_.take(requested, tag);
  }

  /// release, where that is exactly the next event, as take_next.
  bool release_next(driver::DevicePtr at) { return range().contains(at) && course_.give(at); }

  /// The step is over. False where it was not the one that was planned.
  bool end_step() SPILLWAY_REQUIRES(mutex);

  /// Brings the heap's accounting up to now. The code that changes or reads them calls it before,
  /// so that peaks are exact.
  void write_accounting() SPILLWAY_REQUIRES(mutex);

  void show() override SPILLWAY_REQUIRES(mutex);
  void open() override SPILLWAY_REQUIRES(mutex);
  [[nodiscard]] const Block* first() const override SPILLWAY_REQUIRES(mutex);
  void read(HeapStats& stats) const override SPILLWAY_REQUIRES(mutex);
  /// Ends the plan and gives all chunks back that no block is in.
  Bytes trim() override SPILLWAY_REQUIRES(mutex);
  Bytes evict(const std::vector<Block*>& blocks) override SPILLWAY_REQUIRES(mutex);
  Result<std::vector<Range>> back(std::vector<Block*>& blocks) override SPILLWAY_REQUIRES(mutex);
  void unback(const std::vector<Block*>& blocks, const std::vector<Range>& ranges) override
      SPILLWAY_REQUIRES(mutex);
  void revive(const std::vector<Block*>& blocks) override SPILLWAY_REQUIRES(mutex);
  [[nodiscard]] std::string check() const override SPILLWAY_REQUIRES(mutex);

 private:
  /// A request and its block: kGap without a place, kFree, kLive, or kHole: freed, while others use
  /// it.
  struct Request {
    Block block;
    Bytes requested;
    bool placed = false;
    bool viewed = false;  // its addresses are a view of pages that lie apart
    /// Its memory, in parts_: from `part` up to, without, `part_end`.
    std::uint32_t part = 0;
    std::uint32_t part_end = 0;
  };

  /// Memory that a block has.
  struct Taken {
    Range part;
    Block* block;
  };

  driver::DevicePtr take_checked(Bytes requested, TagId tag) SPILLWAY_REQUIRES(mutex);
  bool release_checked(driver::DevicePtr at) SPILLWAY_REQUIRES(mutex);
  void hand_out(Request& request, TagId tag) SPILLWAY_REQUIRES(mutex);
  void free_place(Block* block) SPILLWAY_REQUIRES(mutex);
  void free_passed() SPILLWAY_REQUIRES(mutex);
  void take_back(Block* block) SPILLWAY_REQUIRES(mutex);
  void write_blocks() SPILLWAY_REQUIRES(mutex);
  void end_course() SPILLWAY_REQUIRES(mutex);
  void plan_course(const StepSequence& sequence) SPILLWAY_REQUIRES(mutex);
  void place_requests(const StepPlan& plan) SPILLWAY_REQUIRES(mutex);
  bool vacate(const Request& place) SPILLWAY_REQUIRES(mutex);
  [[nodiscard]] std::vector<Range> unmapped(const Request& place) const SPILLWAY_REQUIRES(mutex);
  [[nodiscard]] bool ready(const Request& place) const SPILLWAY_REQUIRES(mutex);
  [[nodiscard]] bool all_ready() const SPILLWAY_REQUIRES(mutex);

  [[nodiscard]] std::span<const Range> parts_of(const Request& request) const
      SPILLWAY_REQUIRES(mutex) {
    return std::span(parts_).subspan(request.part, request.part_end - request.part);
  }

  [[nodiscard]] std::vector<Block*> blocks_in_use() const SPILLWAY_REQUIRES(mutex);
  [[nodiscard]] bool in_use(Range memory) const SPILLWAY_REQUIRES(mutex);

  Accounting& accounting_;  // for whole steps
  ReplayCursor course_;
  StepTotals whole_ SPILLWAY_GUARDED_BY(mutex);        // of a step that goes as planned
  HeapStats whole_counts_ SPILLWAY_GUARDED_BY(mutex);  // the same
  mutable std::vector<Request> requests_ SPILLWAY_GUARDED_BY(mutex);
  mutable std::deque<Block> between_
      SPILLWAY_GUARDED_BY(mutex);  // free memory and gaps, for first()
  std::vector<Range> parts_ SPILLWAY_GUARDED_BY(mutex);
  /// The memory of blocks that are live or still used, in address order. No two overlap.
  std::vector<Taken> taken_ SPILLWAY_GUARDED_BY(mutex);
  Bytes page_ SPILLWAY_GUARDED_BY(mutex);  // as StepPlan
  std::size_t next_ SPILLWAY_GUARDED_BY(mutex) = 0;
  Bytes live_ SPILLWAY_GUARDED_BY(mutex);
  bool planned_ SPILLWAY_GUARDED_BY(mutex) = false;
  bool plain_ SPILLWAY_GUARDED_BY(mutex) = false;    // as StepPlan
  bool mapped_ SPILLWAY_GUARDED_BY(mutex) = false;   // all of it
  bool differs_ SPILLWAY_GUARDED_BY(mutex) = false;  // the running step, from the plan
};

}  // namespace spillway
