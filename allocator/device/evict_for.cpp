// SPDX-License-Identifier: Apache-2.0
#include "allocator/base/log.h"
#include "allocator/device/device_runtime.h"
#include "allocator/device/out_of_memory.h"
#include "allocator/tag/tag.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <iterator>
#include <map>
#include <utility>

namespace spillway {
namespace {

/// A tag, or a path with several tags, and the bytes that its pause would release to the driver.
struct Holder {
  std::string path;
  std::vector<TagId> tags;
  Bytes gives;
};

bool gives_less(const Holder& left, const Holder& right) {
  return left.gives < right.gives;
}

/// Every tag with memory of its own.
std::vector<Holder> holders(const Heap& heap) {
  std::vector<Holder> all;
  for (const HeapTagInfo& tag : heap.view().tags()) {
    if (tag.allocated <= tag.evicted || tag.tag == TagId::kUntagged) continue;
    all.push_back({tag_name(tag.tag), {tag.tag}, heap.reclaimable({&tag.tag, 1})});
  }
  return all;
}

/// The parent paths of tags: "a" and "a/b" for "a/b/c".
std::vector<Holder> outer_paths(const Heap& heap, const std::vector<Holder>& tags) {
  std::map<std::string, std::vector<TagId>> inside;
  for (const Holder& tag : tags) {
    for (std::size_t end = tag.path.find('/'); end != std::string::npos;
         end = tag.path.find('/', end + 1)) {
      inside[tag.path.substr(0, end)].push_back(tag.tags.front());
    }
  }
  std::vector<Holder> all;
  for (auto& [path, members] : inside) {
    for (const Holder& tag : tags) {
      if (tag.path == path) members.push_back(tag.tags.front());
    }
    const Bytes gives = heap.reclaimable(members);
    all.push_back({path, std::move(members), gives});
  }
  return all;
}

/// The smallest one that releases enough.
const Holder* smallest_enough(const std::vector<Holder>& all, Bytes missing) {
  const Holder* found = nullptr;
  for (const Holder& each : all) {
    if (each.gives >= missing && (found == nullptr || gives_less(each, *found))) found = &each;
  }
  return found;
}

/// The fewest tags that release `missing` bytes: one that is just enough, or the largest ones;
/// empty if all together do not.
std::vector<TagId> enough(std::vector<Holder> all, Bytes missing) {
  if (const Holder* one = smallest_enough(all, missing)) return one->tags;
  std::sort(all.rbegin(), all.rend(), gives_less);
  std::vector<TagId> tags;
  Bytes sum;
  for (const Holder& each : all) {
    tags.push_back(each.tags.front());
    sum += each.gives;
    if (sum >= missing) return tags;
  }
  return {};
}

/// A plan is corrected by at most this part of the budget for model state that left.
constexpr std::uint64_t kCorrection = 128;
constexpr auto kReclaimers = static_cast<std::size_t>(DeviceRuntime::Reclaims::kCount);
std::array<std::atomic<DeviceRuntime::Reclaimer>, kReclaimers> reclaimers{};
std::atomic<DeviceRuntime::ExcessObserver> excess_observer{nullptr};

// Read by every allocation and free. So few bytes always fit in the static TLS block.
[[gnu::tls_model("initial-exec")]] thread_local constinit bool optional_allocations = false;
[[gnu::tls_model("initial-exec")]] thread_local constinit bool model_state_blocks = false;

}  // namespace

bool& OptionalAllocation::open() {
  return optional_allocations;
}

bool& ModelStateBlocks::open() {
  return model_state_blocks;
}

void DeviceRuntime::set_reclaimer(Reclaims of, Reclaimer reclaimer) {
  reclaimers.at(static_cast<std::size_t>(of)) = reclaimer;
}

void DeviceRuntime::set_excess_observer(ExcessObserver observer) {
  excess_observer = observer;
}

Bytes DeviceRuntime::reclaim(Bytes wanted, BlockUse use) {
  const ModelStateBlocks others(false);
  const auto from = [&](Reclaims of) {
    const Reclaimer reclaimer = reclaimers.at(static_cast<std::size_t>(of));
    return reclaimer == nullptr ? Bytes{} : reclaimer(*this, wanted, use);
  };
  const bool streams = use == BlockUse::kStreamed && heap_->placement().streaming();
  if (streams || model_state_.exceeds_share()) {
    const Bytes freed = from(Reclaims::kModelState);
    if (!freed.zero()) return freed;
  }
  if (streams) {
    // Cached memory of other blocks, and what was offloaded for it.
    const Bytes freed = heap_->trim_sync();
    if (!freed.zero()) return freed;
  }
  Bytes freed = from(Reclaims::kSavedTensors);
  if (!freed.zero()) return freed;
  // Of its share nothing should leave: the plan has to leave more free.
  const Bytes room = saturating_sub(heap_->limits().budget(), heap_->view().reserved());
  const Bytes beyond = saturating_sub(wanted, room);
  freed = from(Reclaims::kModelState);
  const Bytes most{heap_->limits().budget().count() / kCorrection};
  if (model_state_.share_stays()) model_state_.count_reclaimed(std::min({freed, beyond, most}));
  return freed.zero() ? from(Reclaims::kRecomputed) : freed;
}

Bytes DeviceRuntime::missing(Bytes size) const {
  const auto memory = driver::memory_info(device_);
  if (!memory.ok()) return size;
  Bytes room = memory.value().free;
  Bytes beyond;  // the limit, which may be below the reserved bytes
  if (const Bytes limit = heap_->limits().limit(); !limit.zero()) {
    const Bytes reserved = heap_->view().reserved();
    room = std::min(room, saturating_sub(limit, reserved));
    if (reserved > limit) beyond = reserved - limit;
  }
  if (size > memory.value().total)
    return size;  // regardless of evictions; and sizes near 2^64 must not be rounded
  // Memory is mapped and released in whole chunks.
  const Bytes wanted = size.rounded_up(heap_->view().granularity());
  room = room.rounded_down(heap_->view().granularity());
  return wanted > room ? wanted - room + beyond : Bytes{};
}

std::string DeviceRuntime::advice(Bytes missing) const {
  std::vector<Holder> all = holders(*heap_);
  std::vector<Holder> outer = outer_paths(*heap_, all);
  std::move(outer.begin(), outer.end(), std::back_inserter(all));
  const Holder* const one = missing.zero() ? nullptr : smallest_enough(all, missing);
  if (one == nullptr) return "pausing no single tag would have made room";
  return "pausing \"" + one->path + "\" (" + readable(one->gives) +
         ") would have made room: spillway.pause(\"" + one->path +
         "\") while nothing uses it, or spillway.memory.allow_eviction(\"" + one->path + "\")";
}

Status DeviceRuntime::oom_status(Bytes size, const Status& why) {
  const Status detail =
      SPILLWAY_ERROR(Code::kOutOfDeviceMemory,
                     why.detail() + "; " + heap_->view().describe() + "; " + advice(missing(size)));
  return SPILLWAY_ERROR(Code::kOutOfDeviceMemory, out_of_memory_text(*this, size, detail));
}

Result<std::vector<TagId>> DeviceRuntime::evict_for(Bytes size) {
  std::vector<Holder> offloadable = holders(*heap_);
  std::erase_if(offloadable,
                [&](const Holder& holder) { return !evictable_.allows(holder.tags.front()); });
  const std::vector<TagId> tags =
      enough(std::move(offloadable), std::max(missing(size), heap_->view().granularity()));
  if (tags.empty()) {
    return SPILLWAY_ERROR(Code::kOutOfDeviceMemory,
                          "the tags whose eviction is allowed hold less than is missing");
  }
  SPILLWAY_ASSIGN_OR_RETURN(PauseManager::Blocks blocks,
                            pauses_->begin_pause(tags, Contents::kKept));
  pauses_->finish_pause(std::move(blocks));
  return tags;
}

void DeviceRuntime::return_to_job_budget() {
  const Bytes budget = budget_->of_job();
  const Bytes reserved = heap_->view().reserved();
  if (budget.zero() || reserved <= budget) return;
  static_cast<void>(heap_->trim_sync());
  while (heap_->view().allocated() > budget) {
    if (reclaim(heap_->view().allocated() - budget, BlockUse::kAny).zero()) break;
  }
  static_cast<void>(heap_->trim_sync());
}

Result<driver::DevicePtr> DeviceRuntime::allocate_under_pressure(Bytes size,
                                                                 driver::Stream stream,
                                                                 PoolId pool) {
  bool trimmed = false;
  // Each round offloads something, releases cached memory, exceeds the budget, or is the last.
  while (true) {
    auto block = heap_->allocate(size, stream, current_tag(), pool, ModelStateBlocks::use());
    if (block.ok() || block.status().code() != Code::kOutOfDeviceMemory) return block;
    if (OptionalAllocation::active()) return block;
    pressed_ = true;
    if (!reclaim(size, ModelStateBlocks::use()).zero()) continue;
    if (!heap_->limits().would_exceed_budget(size)) return allocate_by_eviction(size, stream, pool);
    if (!std::exchange(trimmed, true)) {
      heap_->trim_sync();
    } else {
      if (log_enabled()) {
        log("an allocation of " + readable(size) + " exceeds the budget of " +
            readable(heap_->limits().budget()) + ": " + heap_->view().describe());
      }
      heap_->limits().exceed_budget(size);
      if (const ExcessObserver observer = excess_observer.load())
        observer(*this, size, heap_->limits().budget());
    }
  }
}

Result<driver::DevicePtr> DeviceRuntime::allocate_by_eviction(Bytes size,
                                                              driver::Stream stream,
                                                              PoolId pool) {
  const Lock operation(evictable_.operation_mutex());
  std::vector<TagId> paused;
  // Each round pauses at least one tag, or is the last.
  while (true) {
    // Tried first too: another thread may have made room while this one waited for the lock.
    auto block = heap_->allocate(size, stream, current_tag(), pool, ModelStateBlocks::use());
    if (block.ok() || block.status().code() != Code::kOutOfDeviceMemory) return block;
    const Bytes shortfall = missing(size);
    if (!shortfall.zero()) {
      const auto more = evict_for(size);
      if (more.ok()) {
        paused.insert(paused.end(), more.value().begin(), more.value().end());
        continue;
      }
    }
    // The pause did not help, so it is undone as far as memory allows.
    if (auto back = pauses_->begin_resume(paused); back.ok()) {
      pauses_->finish_resume(std::move(back).value());
    }
    return SPILLWAY_ERROR(Code::kOutOfDeviceMemory,
                          block.status().detail() + "; " + advice(shortfall));
  }
}

}  // namespace spillway
