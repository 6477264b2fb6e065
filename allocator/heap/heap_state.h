// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "allocator/base/mutex.h"
#include "allocator/driver/timelines.h"
#include "allocator/heap/accounting.h"
#include "allocator/heap/address_space.h"
#include "allocator/heap/heap.h"
#include "allocator/heap/planned_region.h"
#include "allocator/heap/regions.h"
#include "allocator/heap/step_recorder.h"

#include <atomic>
#include <map>
#include <memory>
#include <span>
#include <utility>
#include <vector>

namespace spillway {

/// A block as the heap shows it to others.
HeapBlockInfo info_of(const Block& block, const RegionKey& key);

/// Where a heap is between writing steps down and replaying them. With the heap's lock, but for the
/// recorder.
class Replay {
 public:
  /// A plan is given up after this many steps in a row that were not it.
  static constexpr int kMaxDiffering = 3;

  [[nodiscard]] bool stopped() const { return stopped_; }

  /// There are no more plans.
  void stop() {
    stopped_ = true;
    recorder.turn(false);
  }

  /// All memory is needed, that of a plan too. `may_plan`: where there is a target the next plan
  /// needs no more than any step, and is looked for, but not indefinitely.
  void ran_out(bool may_plan) {
    if (!may_plan || ++times_out_ > kMaxTimesOut) stop();
  }

  StepRecorder recorder;
  int differing = 0;
  // Of the plan that is there:
  int followed = 0;          // steps that went by it, with a target
  Bytes room;                // that it could have had
  std::size_t requests = 0;  // in it
  Bytes size;

 private:
  static constexpr int kMaxTimesOut = 16;

  int times_out_ = 0;
  bool stopped_ = false;
};

/// The inside of a Heap. `mutex` is for what is rare, growth above all; a block that is there is
/// handed out and released with its region's lock only. Locks are taken in this order: mutex, one
/// region's, those of the accounting and timelines.
// NOLINTNEXTLINE(clang-analyzer-optin.performance.Padding): the accounting have lines of their own
struct Heap::State {
  using ByRegion = std::map<Region*, std::vector<Block*>>;

  State(const driver::Device& on, const HeapOptions& with);

  /// A block that is in the cache; null where there is none, or it must be waited for.
  driver::DevicePtr hit(const RegionKey& key, Bytes size, Bytes requested, TagId tag) const;
  /// hit, then miss, then the error.
  Result<driver::DevicePtr> serve(
      Heap& heap, Bytes size, driver::Stream stream, TagId tag, PoolId pool);
  /// With all that can be done when it is not.
  Result<driver::DevicePtr> miss(const RegionKey& key, Bytes size, Bytes requested, TagId tag);
  Result<driver::DevicePtr> allocate(const RegionKey& key,
                                     Bytes size,
                                     Bytes requested,
                                     TagId tag,
                                     bool may_grow) SPILLWAY_REQUIRES(mutex);
  /// Releases what is free, plans and all.
  Bytes trim() const SPILLWAY_REQUIRES(mutex);
  /// The same, but for the memory of plans.
  Bytes trim_cached() const SPILLWAY_REQUIRES(mutex);
  /// Before the heap grows past its target: also the memory of a plan that the step does not
  /// follow.
  void trim_to_target() const SPILLWAY_REQUIRES(mutex);
  /// Requires: the heap's lock.
  static Bytes trim(Region& region);
  /// Where more than the target is held: trim_cached(), the first few times for each target.
  void trim_beyond_target();
  /// A step ends with its tail. Where it has left nothing that stays, later ones will not either.
  void end_optimizer_phase();
  Bytes kept SPILLWAY_GUARDED_BY(mutex);  // live in what tails have made
  /// What is stranded now goes into `stranded`, and with all that is live into `beside_plans`.
  void see_stranded();
  Bytes beside_plans SPILLWAY_GUARDED_BY(mutex);
  /// Another step has gone by its plan. True where such steps hold more than the target: the next
  /// plan is to leave that room.
  bool holds_too_much() SPILLWAY_REQUIRES(mutex);
  /// The target is one of many pages.
  [[nodiscard]] bool has_many_pages() const;
  /// True where a plan of that size would hold more than the target, or more than plans before it
  /// have shown to be left; `plan_shortfall` is then how much.
  bool lacks_room(Bytes size) SPILLWAY_REQUIRES(mutex);
  std::pair<Bytes, Bytes> plan_shortfall
      SPILLWAY_GUARDED_BY(mutex);  // a target, and bytes: take_plan_shortfall

  /// What was found out with a target.
  struct KnownTarget {
    int trims = 0;
    int lacked = 0;    // plans that were not followed: take_plan_shortfall
    int given_up = 0;  // that were followed, and held too much
    /// The last one of those: its size, and how many requests it was of.
    std::pair<Bytes, std::size_t> last_given_up{};
    Bytes to_leave;  // of its room, as plans that held too much have shown
  };

  /// What the next plan is to leave of its room.
  [[nodiscard]] Bytes to_leave(const KnownTarget& here) const SPILLWAY_REQUIRES(mutex);

  /// Null where too many others are known.
  KnownTarget* known(Bytes target) SPILLWAY_REQUIRES(mutex);
  std::map<Bytes, KnownTarget> targets SPILLWAY_GUARDED_BY(mutex);
  /// A block that nothing need wait for, from what is free or, up to the target, from new memory;
  /// none where there is none.
  std::optional<Result<Block*>> take_unfenced(
      Region& region, Bytes size, Bytes requested, TagId tag, bool may_grow) const
      SPILLWAY_REQUIRES(mutex) SPILLWAY_REQUIRES(region.mutex);
  /// trim(), because memory is short: then plans are no help.
  Bytes trim_for_room() SPILLWAY_REQUIRES(mutex);

  /// The accounting are to be read or changed, other than for a planned block: they are brought up
  /// to now.
  void write_accounting() const {
    PlannedRegion* const region = planned.load(std::memory_order_acquire);
    if (region == nullptr) return;
    const LightLock lock(region->mutex);
    region->write_accounting();
  }

  /// PlannedRegion::take, with memory mapped where it lacks some.
  driver::DevicePtr take_planned(PlannedRegion& region, Bytes size, TagId tag);
  /// A free by its owner, as far as plans are concerned, that is not what one expects next. True
  /// where that was all of it.
  bool free_in_step(driver::DevicePtr at);
  void end_step();
  bool follow_plan() SPILLWAY_REQUIRES(mutex);
  void rest() SPILLWAY_REQUIRES(mutex);
  std::optional<Bytes> room_for(const StepSequence& sequence);
  /// `room`: what it was made for; none without a target.
  void adopt(const StepPlan& plan, std::optional<Bytes> room) SPILLWAY_REQUIRES(mutex);
  Result<Region*> region_for(const RegionKey& key) SPILLWAY_REQUIRES(mutex);
  /// Live blocks by region. Errors: kInvalidArgument where one is none.
  Result<ByRegion> allocated_blocks(std::span<const driver::DevicePtr> blocks) const;
  /// Requires: the heap's lock.
  static Status restore(ByRegion blocks);

  /// Calls `see(block, region)` for the live block around `at`, with its region's lock held; false
  /// where there is none.
  template <typename See>
  bool with_block(driver::DevicePtr at, See see) const {
    Region* const region = regions.around(at);
    if (region == nullptr) return false;
    const RegionLock lock(*region);
    Block* const block = region->around(at);
    if (block == nullptr) return false;
    see(*block, *region);
    return true;
  }

  bool refuse_free() {
    ++bad_frees;
    return false;
  }

  const driver::Device device;
  const HeapOptions options;
  std::atomic<std::uint64_t> bad_frees{0};
  std::atomic<std::uint64_t> over_budget{0};
  std::atomic<std::uint64_t> walks{0};  // Heap::walks
  mutable Mutex mutex;
  Accounting accounting;
  driver::Timelines timelines;
  AddressSpace addresses;  // as it opens, and then with `mutex`
  Access access SPILLWAY_GUARDED_BY(mutex);
  Regions regions;                                // added to with `mutex`
  std::atomic<bool> replays;                      // steps may be written down and replayed
  std::atomic<bool> target_was_set{false};        // in the running step
  std::atomic<bool> tails_keep{true};             // something that stays
  std::atomic<std::uint64_t> stranded{0};         // bytes (stranded_at_target)
  std::atomic<std::uint64_t> double_buffered{0};  // bytes (Heap::double_buffered)
  std::atomic<Tier> large_tier{Tier::kLarge};     // of the large blocks that are new
  Replay replay;
  std::atomic<PlannedRegion*> planned{nullptr};  // the latest plan's region
};

}  // namespace spillway
