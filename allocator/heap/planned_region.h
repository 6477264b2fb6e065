// SPDX-License-Identifier: Apache-2.0
#pragma once

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
/// Its blocks are records of the plan, not parts of a list: evict marks them and gives nothing
/// back. Threads and ownership: as Region.
class PlannedRegion final : public Region {
 public:
  using Region::Region;

  /// Follows `plan` from the next request on. Requires: idle(). Errors: as Backing::map; there is
  /// no plan then.
  Status adopt(StepPlan plan) SPILLWAY_REQUIRES(mutex);

  /// Whether there is a plan.
  [[nodiscard]] bool planned() const SPILLWAY_REQUIRES(mutex) { return planned_; }

  /// Whether neither a plan nor anything of an earlier one is here.
  [[nodiscard]] bool idle() const SPILLWAY_REQUIRES(mutex) { return requests_.empty(); }

  /// Whether a block is live or still used by other streams.
  [[nodiscard]] bool in_use() const SPILLWAY_REQUIRES(mutex) { return in_use_ != 0; }

  /// The next request of the step: its block, which is live then, or null where the heap is to
  /// serve it. Stream: usable at once; no wait.
  Block* replay(Bytes requested, TagId tag) SPILLWAY_REQUIRES(mutex);

  /// The owner of a live block gives it back.
  void give_back(Block* block) SPILLWAY_REQUIRES(mutex);

  /// The step is over. False where it was not the one that was planned.
  bool end_step() SPILLWAY_REQUIRES(mutex);

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

  void fall_back() SPILLWAY_REQUIRES(mutex);
  void link_requests() SPILLWAY_REQUIRES(mutex);
  void block_taken_places() SPILLWAY_REQUIRES(mutex);
  [[nodiscard]] std::vector<Block*> taken() const SPILLWAY_REQUIRES(mutex);

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
