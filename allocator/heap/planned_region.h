// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "allocator/heap/course.h"
#include "allocator/heap/region.h"
#include "allocator/heap/step_recorder.h"

#include <cstdint>
#include <deque>
#include <string>
#include <vector>

namespace spillway {

/// A step's requests with their places.
struct StepPlan {
  StepSequence sequence;
  std::vector<Bytes> offsets;  // one for each request; of meaning where it is placed
  Bytes size;
};

/// Best places for all requests of a sequence that can have one.
StepPlan plan_of(StepSequence sequence);

/// Blocks of one stream at the places of a plan. Request by request it is checked that the step is
/// the one that was planned and that what had the place before is free; the first difference ends
/// the plan for the rest of that step. A block that outlives its step keeps its place until it is
/// freed, as does one that other streams still use.
///
/// As long as a step does exactly what was planned, frees included, only how far it has come is
/// kept (Course): blocks and books are brought up to that when somebody looks at them. Where it
/// does anything else, or somebody changes its blocks, each of its further requests is looked up
/// and written down; it is the planned one still as long as its requests are.
///
/// Its blocks are records of the plan, not parts of a list: evict marks them and gives nothing
/// back. Keeps the heap's books of its blocks. Threads and ownership: as Region.
class PlannedRegion final : public Region {
 public:
  PlannedRegion(const RegionParts& parts, RegionKey key, Range range)
      : Region(parts, key, range), books_(parts.books) {}

  /// Follows `plan` from the next request on. Requires: idle(). Errors: as Backing::map; there is
  /// no plan then.
  Status adopt(StepPlan plan) SPILLWAY_REQUIRES(mutex);

  /// Whether there is a plan.
  [[nodiscard]] bool planned() const SPILLWAY_REQUIRES(mutex) { return planned_; }

  /// Whether neither a plan nor anything of an earlier one is here.
  [[nodiscard]] bool idle() const SPILLWAY_REQUIRES(mutex) { return requests_.empty(); }

  /// Whether a block is live or still used by other streams.
  [[nodiscard]] bool in_use() const SPILLWAY_REQUIRES(mutex) { return in_use_ != 0; }

  /// The next request of the step: where its block is, which is live then; null where the heap is
  /// to serve it. Stream: usable at once; no wait.
  driver::DevicePtr take(Bytes requested, TagId tag) SPILLWAY_REQUIRES(mutex) {
    const driver::DevicePtr at = course_.take(requested, tag);
    return at != driver::DevicePtr{} ? at : take_checked(requested, tag);
  }

  /// The owner of a block gives it back. False where it is not live, or held.
  bool give_back(driver::DevicePtr at) SPILLWAY_REQUIRES(mutex) {
    return course_.give(at) || give_back_checked(at);
  }

  /// take for a request that is exactly the next event that was planned; null for any other, and
  /// where another thread is at it. Threads: takes no lock.
  driver::DevicePtr take_next(driver::Stream stream, PoolId pool, Bytes requested, TagId tag) {
    if (stream.handle() != key().stream || pool != PoolId::kShared) return {};
    return course_.take(requested, tag);
  }

  /// give_back, where that is exactly the next event, as take_next.
  bool give_back_next(driver::DevicePtr at) { return range().contains(at) && course_.give(at); }

  /// The step is over. False where it was not the one that was planned.
  bool end_step() SPILLWAY_REQUIRES(mutex);

  /// Brings the heap's books up to now. Whoever changes or reads them calls it before, so that
  /// peaks are exact.
  void write_books() SPILLWAY_REQUIRES(mutex);

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
    bool blocked = false;      // a block of an earlier step is in its place
    std::uint32_t before = 0;  // in before_: the requests that have parts of its place before it
    std::uint32_t before_end = 0;
  };

  driver::DevicePtr take_checked(Bytes requested, TagId tag) SPILLWAY_REQUIRES(mutex);
  bool give_back_checked(driver::DevicePtr at) SPILLWAY_REQUIRES(mutex);
  void hand_out(Request& request, TagId tag) SPILLWAY_REQUIRES(mutex);
  void free_place(Block* block) SPILLWAY_REQUIRES(mutex);
  void take_back(Block* block) SPILLWAY_REQUIRES(mutex);
  void write_blocks() SPILLWAY_REQUIRES(mutex);
  void end_course() SPILLWAY_REQUIRES(mutex);
  void plan_course(const StepSequence& sequence) SPILLWAY_REQUIRES(mutex);
  void fall_back() SPILLWAY_REQUIRES(mutex);
  void link_requests() SPILLWAY_REQUIRES(mutex);
  void block_taken_places() SPILLWAY_REQUIRES(mutex);
  [[nodiscard]] std::vector<Block*> taken() const SPILLWAY_REQUIRES(mutex);

  Books& books_;  // for whole steps
  Course course_;
  PassingBlocks whole_ SPILLWAY_GUARDED_BY(mutex);     // of a step that goes as planned
  HeapStats whole_counts_ SPILLWAY_GUARDED_BY(mutex);  // the same
  mutable std::vector<Request> requests_ SPILLWAY_GUARDED_BY(mutex);
  mutable std::deque<Block> between_
      SPILLWAY_GUARDED_BY(mutex);  // free memory and gaps, for first()
  std::vector<std::uint32_t> before_ SPILLWAY_GUARDED_BY(mutex);
  std::size_t next_ SPILLWAY_GUARDED_BY(mutex) = 0;
  std::size_t in_use_ SPILLWAY_GUARDED_BY(mutex) = 0;  // blocks that are live or still used
  Bytes live_ SPILLWAY_GUARDED_BY(mutex);
  bool planned_ SPILLWAY_GUARDED_BY(mutex) = false;
  bool differs_ SPILLWAY_GUARDED_BY(mutex) = false;  // the running step, from the plan
  bool blocked_ SPILLWAY_GUARDED_BY(mutex) = false;  // some request is
};

}  // namespace spillway
