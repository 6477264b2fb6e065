// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "allocator/base/mutex.h"
#include "allocator/driver/timeline.h"
#include "allocator/heap/accounting.h"
#include "allocator/heap/address_space.h"
#include "allocator/heap/heap.h"
#include "allocator/heap/regions.h"
#include "allocator/heap/replay_state.h"

#include <atomic>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

namespace spillway {

/// Describes a block for snapshots.
HeapBlockInfo info_of(const Block& block, const RegionKey& key);

/// The state of a Heap. `mutex` guards rare operations such as growth. Allocations from the cache
/// and frees take only their heap region's lock. Lock order: mutex, one heap region's lock, the
/// locks of the accounting and the timelines.
// NOLINTNEXTLINE(clang-analyzer-optin.performance.Padding): the accounting have lines of their own
struct HeapState {
  using ByRegion = std::map<Region*, std::vector<Block*>>;

  /// The arguments of Heap::allocate.
  struct Request {
    Bytes size;
    driver::Stream stream;
    TagId tag;
    PoolId pool;
    BlockUse use = BlockUse::kAny;
  };

  HeapState(const driver::Device& on, const HeapOptions& with);

  /// A cached block; null if there is none or its fences have not passed.
  driver::DevicePtr hit(const RegionKey& key, Bytes size, Bytes requested, TagId tag) const;
  [[nodiscard]] HeapStats stats();
  /// Tries hit, then miss, then returns the error.
  Result<driver::DevicePtr> serve(Heap& heap, const Request& request);
  /// The tier of large blocks.
  [[nodiscard]] Tier tier_of(BlockUse use) const;
  /// Allocates by every available means after a cache miss.
  Result<driver::DevicePtr> miss(const RegionKey& key, Bytes size, Bytes requested, TagId tag);
  /// The memory that allocate() may use; each includes the ones before.
  enum class Source : std::uint8_t {
    kSettled,  // under a target: free memory without pending uses
    kCached,
    kNew,
  };
  Result<driver::DevicePtr> allocate(const RegionKey& key,
                                     Bytes size,
                                     Bytes requested,
                                     TagId tag,
                                     Source most) SPILLWAY_REQUIRES(mutex);
  Result<driver::DevicePtr> share(const RegionKey& key,
                                  Bytes size,
                                  Bytes requested,
                                  TagId tag,
                                  Source most) SPILLWAY_REQUIRES(mutex);
  /// From cached memory. Under a target, memory without pending uses comes first, even if it has to
  /// move to other addresses.
  Result<driver::DevicePtr> take_cached(const RegionKey& key,
                                        Bytes size,
                                        Bytes requested,
                                        TagId tag) SPILLWAY_REQUIRES(mutex);
  Result<driver::DevicePtr> take_streamed(const RegionKey& key,
                                          Bytes size,
                                          Bytes requested,
                                          TagId tag) SPILLWAY_REQUIRES(mutex);
  /// Releases cached memory for a request that fails.
  void trim_after_failure(Bytes growth) SPILLWAY_REQUIRES(mutex);
  /// Releases all free memory, including that of replay plans.
  Bytes trim() SPILLWAY_REQUIRES(mutex);
  /// Releases free memory except that of replay plans.
  Bytes trim_cached() SPILLWAY_REQUIRES(mutex);
  /// Bytes that trim_cached would release.
  Bytes trimmable() const SPILLWAY_REQUIRES(mutex);
  /// Moves or releases as much free memory, of that tier or of all, as heap regions of this stream
  /// lack to grow by `size` and stay within the target. Returns what they still lack.
  Bytes trim_some_to_target(CUstream stream,
                            Bytes size,
                            std::optional<Tier> of = std::nullopt) const SPILLWAY_REQUIRES(mutex);
  /// Moves or releases free memory, so that heap regions of this stream may grow by `size` and stay
  /// within the target. Also releases the memory of a replay plan that the step does not follow.
  void trim_to_target(CUstream stream, Bytes size) SPILLWAY_REQUIRES(mutex);
  /// Requires: the heap's lock is held.
  static Bytes trim(Region& region);
  /// If more than the target is reserved, releases the difference; only the first few times per
  /// target.
  void trim_beyond_target();
  /// Ends the optimizer phase. If it added no persistent blocks, later phases are not separated.
  void end_optimizer_phase();
  Bytes kept SPILLWAY_GUARDED_BY(mutex);  // allocated in the persistent tier
  /// Updates `stranded`, and `beside_plans` as allocated plus stranded bytes.
  void see_stranded();
  Bytes beside_plans SPILLWAY_GUARDED_BY(mutex);
  /// HeapLimits::smallest_budget.
  [[nodiscard]] Bytes smallest_budget() const;
  /// Whether the target has at least that many bytes.
  [[nodiscard]] bool has_many_pages() const;
  /// How often memory beyond each target was released.
  std::map<Bytes, int> trims SPILLWAY_GUARDED_BY(mutex);
  /// A block that needs no wait: from free memory or, up to the target, from new memory. None if
  /// there is neither.
  std::optional<Result<Block*>> take_unfenced(
      Region& region, Bytes size, Bytes requested, TagId tag, bool may_grow) const
      SPILLWAY_REQUIRES(mutex) SPILLWAY_REQUIRES(region.mutex);
  /// trim() on memory shortage, which replay plans cannot solve.
  Bytes trim_for_room() SPILLWAY_REQUIRES(mutex);

  Result<Region*> region_for(const RegionKey& key) SPILLWAY_REQUIRES(mutex);
  /// Allocated blocks by heap region. Errors: kInvalidArgument if an address is not the start of
  /// one.
  Result<ByRegion> allocated_blocks(std::span<const driver::DevicePtr> blocks) const;
  /// Requires: the heap's lock is held.
  static Status restore(ByRegion blocks);

  /// Calls `see(block, region)` for the allocated block that contains `at`, under its heap region's
  /// lock. Returns false if there is none.
  template <typename See>
  bool with_block(driver::DevicePtr at, See see) const {
    Region* const region = regions.around(at);
    if (region == nullptr) return false;
    const RegionLock lock(*region);
    Block* const block = region->allocated().around(at);
    if (block == nullptr) return false;
    see(*block, *region);
    return true;
  }

  /// The heap regions whose free memory may be released, without those of replay plans.
  [[nodiscard]] std::vector<Region*> trimmable_regions() const SPILLWAY_REQUIRES(mutex);

  /// Those of replay plans.
  [[nodiscard]] std::vector<ReplayRegion*> replay_regions() const SPILLWAY_REQUIRES(mutex);

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
  AddressSpace addresses;  // set up by open(), then guarded by `mutex`
  SpareChunks spares;      // has mappings at these addresses
  Access access SPILLWAY_GUARDED_BY(mutex);
  Regions regions;                              // extended under `mutex`
  std::atomic<bool> target_was_set{false};      // during the running step
  Bytes job_budget SPILLWAY_GUARDED_BY(mutex);  // HeapLimits::hold_budget
  std::atomic<bool> optimizer_phase_adds_persistent{
      true};                                   // optimizer phases add persistent blocks
  std::atomic<std::uint64_t> stranded{0};      // bytes (stranded_at_target)
  std::atomic<Tier> large_tier{Tier::kLarge};  // tier of new large blocks
  std::atomic<bool> streams{false};            // PlacementAdvisor::set_streaming
  std::atomic<bool> without_streamed{false};   // PlacementAdvisor::replay_without_streamed
  std::atomic<bool> in_pass{false};            // under a target, until its optimizer phase begins
  ReplayState replay;
};

}  // namespace spillway
