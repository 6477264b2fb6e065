// SPDX-License-Identifier: Apache-2.0
#include "emulator/operators/ledger.h"

#include "emulator/operators/observer.h"

#include <ATen/core/grad_mode.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <torch/csrc/autograd/engine.h>

#include <array>
#include <exception>
#include <mutex>
#include <utility>

namespace spillway::operators {
namespace {

/// Both allocators round a request to this; the peak must be the allocator's, not that of the
/// requests.
std::uint64_t rounded(std::uint64_t bytes) {
  constexpr std::uint64_t kRounding = 512;
  return (bytes + kRounding - 1) / kRounding * kRounding;
}

}  // namespace

void Ledger::allocated(std::uintptr_t at, const Block& block) {
  freed(at);  // its free was not reported
  ++count_;
  live_.emplace(at, Live{block, count_});
  held_ += rounded(block.bytes);
  if (held_ <= peak_) return;
  peak_ = held_;
  peak_at_ = count_;
  gone_.clear();
}

void Ledger::freed(std::uintptr_t at) {
  const auto found = live_.find(at);
  if (found == live_.end()) return;
  held_ -= rounded(found->second.block.bytes);
  if (found->second.number <= peak_at_) gone_.push_back(found->second.block);
  live_.erase(found);
}

void Ledger::set_role(std::uintptr_t at, int role) {
  const auto found = live_.find(at);
  if (found != live_.end()) found->second.block.role = role;
}

void Ledger::fetched(std::uintptr_t at, int role) {
  const auto found = live_.find(at);
  if (found == live_.end()) return;
  found->second.block.role = role;
  found->second.block.name = "fetch";
}

void Ledger::ended(const Block& wanted) {
  if (times_ended_++ != 0) return;
  first_wanted_ = wanted;
  held_at_end_ = held_;
}

std::vector<Ledger::Block> Ledger::at_peak() const {
  std::vector<Block> blocks = gone_;
  for (const auto& [at, live] : live_) {
    if (live.number <= peak_at_) blocks.push_back(live.block);
  }
  return blocks;
}

namespace {

using c10::CachingDeviceAllocator::TraceEntry;

struct Ledgers {
  std::mutex mutex;
  std::array<Ledger, 64> of;  // by device
};

/// Never destroyed: memory is freed until the process ends.
Ledgers& ledgers() {
  static auto* const all = new Ledgers;
  return *all;
}

thread_local int declared_role = SPILLWAY_ROLE_OTHER;

int role_now() {
  if (declared_role != SPILLWAY_ROLE_OTHER) return declared_role;
  if (at::GradMode::is_enabled()) return SPILLWAY_ROLE_ACTIVATION;
  const bool in_backward = torch::autograd::get_current_graph_task_id() != -1;
  return in_backward ? SPILLWAY_ROLE_BACKWARD : SPILLWAY_ROLE_OTHER;
}

/// Called under the allocator's lock: takes no lock whose holder may allocate memory.
void note(const TraceEntry& entry) {
  Ledgers& all = ledgers();
  const std::lock_guard lock(all.mutex);
  Ledger& ledger = all.of.at(static_cast<size_t>(entry.device_));
  if (entry.action_ == TraceEntry::FREE_REQUESTED) return ledger.freed(entry.addr_);
  if (entry.action_ != TraceEntry::ALLOC && entry.action_ != TraceEntry::OOM) return;
  const CurrentOp doing = doing_now();
  const Ledger::Block block{entry.size_, doing.name, doing.location, role_now()};
  if (entry.action_ == TraceEntry::OOM) return ledger.ended(block);
  ledger.allocated(entry.addr_, block);
}

template <class Visit>
void with_ledger(int device, Visit&& visit) {
  Ledgers& all = ledgers();
  const std::lock_guard lock(all.mutex);
  if (device >= 0 && static_cast<size_t>(device) < all.of.size()) {
    visit(all.of.at(static_cast<size_t>(device)));
  }
}

}  // namespace

AllocatesFor::AllocatesFor(int role) : before_(std::exchange(declared_role, role)) {}

AllocatesFor::~AllocatesFor() {
  declared_role = before_;
}

}  // namespace spillway::operators

using namespace spillway::operators;

#define SPILLWAY_EXPORT __attribute__((visibility("default")))

extern "C" SPILLWAY_EXPORT int spillway_operators_watch_memory() {
  try {
    static std::once_flag once;
    std::call_once(once, [] {
      c10::cuda::CUDACachingAllocator::attachAllocatorTraceTracker(note);
      observe_operators();
    });
    return 0;
  } catch (const std::exception&) {
    return 1;
  }
}

extern "C" SPILLWAY_EXPORT void spillway_operators_allocates_for(int role) {
  declared_role = role;
}

extern "C" SPILLWAY_EXPORT void spillway_operators_set_role(const void* at, int role) {
  Ledgers& all = ledgers();
  const std::lock_guard lock(all.mutex);
  for (Ledger& ledger : all.of)
    ledger.set_role(reinterpret_cast<std::uintptr_t>(at), role);
}

extern "C" SPILLWAY_EXPORT void spillway_operators_fetched(const void* at, int role) {
  Ledgers& all = ledgers();
  const std::lock_guard lock(all.mutex);
  for (Ledger& ledger : all.of)
    ledger.fetched(reinterpret_cast<std::uintptr_t>(at), role);
}

extern "C" SPILLWAY_EXPORT size_t spillway_operators_at_peak(int device,
                                                             spillway_operators_block* blocks,
                                                             size_t most) {
  size_t count = 0;
  with_ledger(device, [&](const Ledger& ledger) {
    for (const Ledger::Block& block : ledger.at_peak()) {
      if (count < most) blocks[count] = block;
      ++count;
    }
  });
  return count;
}

extern "C" SPILLWAY_EXPORT size_t spillway_operators_out_of_memory(int device,
                                                                   spillway_operators_block* first,
                                                                   uint64_t* allocated) {
  size_t times = 0;
  with_ledger(device, [&](const Ledger& ledger) {
    times = ledger.times_ended();
    *first = ledger.first_wanted();
    *allocated = ledger.held_at_end();
  });
  return times;
}
