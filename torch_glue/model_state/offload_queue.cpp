// SPDX-License-Identifier: Apache-2.0
#include "torch_glue/model_state/offload_queue.h"

#include <algorithm>
#include <utility>

namespace spillway {
namespace {

/// Fewer obsolete entries than this are kept.
constexpr std::size_t kObsolete = 64;
/// Stretches of a step: next uses in the same one are equally far.
constexpr std::size_t kStretches = 8;

}  // namespace

OffloadQueue::Slot OffloadQueue::add(AccessOrder::Id id) {
  if (free_.empty()) {
    free_.push_back(static_cast<Slot>(entries_.size()));
    entries_.emplace_back();
  }
  const Slot slot = free_.back();
  free_.pop_back();
  Entry& entry = entries_[slot];
  entry.id = id;
  entry.exists = true;
  entry.taken = false;
  entry.uses = 0;
  slots_.emplace(id, slot);
  use(slot, true);
  return slot;
}

void OffloadQueue::remove(Slot slot) {
  Entry& entry = entries_[slot];
  entry.exists = false;
  ++entry.version;
  const auto [first, last] = slots_.equal_range(entry.id);
  slots_.erase(std::find_if(first, last, [&](const auto& known) { return known.second == slot; }));
  free_.push_back(slot);
}

void OffloadQueue::use(Slot slot, bool writes) {
  Entry& entry = entries_[slot];
  entry.last_use = ++time_;
  entry.taken = false;
  order_.use(entry.id);
  if (std::exchange(entry.used_in, step_) != step_) entry.uses = 0;
  ++entry.uses;
  if (writes) {
    entry.write = entry.uses;
    entry.written_in = step_;
  }
  move(slot);
}

void OffloadQueue::leave(Slot slot) {
  const Entry& entry = entries_[slot];
  if (!entry.exists) return;
  if (entry.written_in == step_) departures_.add(entry.id, entry.write);
  if (entry.written_in + 1 == step_) departures_.add_to_last(entry.id, entry.write);
}

void OffloadQueue::end_step(bool few) {
  order_.end_step();
  departures_.end_step();
  ++step_;
  if (std::exchange(coarse_, few) != few) rank_all();
}

void OffloadQueue::move(Slot slot) {
  if (std::exchange(entries_[slot].moved, true)) return;
  moved_.push_back(slot);
}

std::optional<OffloadQueue::Slot> OffloadQueue::take(std::uint64_t after) {
  rank();
  while (!ranked_.empty()) {
    const bool obsolete = entries_[ranked_.front().slot].version != ranked_.front().version;
    if (!obsolete && after != 0 && ranked_.front().next_use <= after) return std::nullopt;
    std::pop_heap(ranked_.begin(), ranked_.end());
    const Ranked first = ranked_.back();
    ranked_.pop_back();
    Entry& entry = entries_[first.slot];
    if (entry.version != first.version) continue;
    entry.taken = true;
    return first.slot;
  }
  return std::nullopt;
}

void OffloadQueue::put_back(Slot slot) {
  Entry& entry = entries_[slot];
  if (!entry.exists || !entry.taken) return;
  entry.taken = false;
  move(slot);
}

void OffloadQueue::refuse(Slot slot) {
  Entry& entry = entries_[slot];
  if (!entry.exists || !entry.taken || std::exchange(entry.refused, true)) return;
  refused_.push_back(slot);
}

bool OffloadQueue::retry_refused() {
  const bool any = !refused_.empty();
  for (const Slot slot : refused_) {
    entries_[slot].refused = false;
    put_back(slot);
  }
  refused_.clear();
  return any;
}

void OffloadQueue::rank() {
  if (!order_.take_changed(passed_over_)) return rank_all();
  for (const AccessOrder::Id id : passed_over_) {
    const auto [first, last] = slots_.equal_range(id);
    for (auto known = first; known != last; ++known)
      if (!entries_[known->second].taken) move(known->second);
  }
  if (ranked_.size() + moved_.size() > 2 * slots_.size() + kObsolete) return rank_all();
  for (const Slot slot : moved_)
    if (rank(slot)) std::push_heap(ranked_.begin(), ranked_.end());
  moved_.clear();
}

void OffloadQueue::rank_all() {
  ranked_.clear();
  moved_.clear();
  for (Slot slot = 0; slot < entries_.size(); ++slot)
    rank(slot);
  std::make_heap(ranked_.begin(), ranked_.end());
}

bool OffloadQueue::rank(Slot slot) {
  Entry& entry = entries_[slot];
  entry.moved = false;
  ++entry.version;
  if (!entry.exists || entry.taken) return false;
  const std::uint64_t next_use = order_.next_use(entry.id);
  const std::uint64_t equal = coarse_ ? order_.length() / kStretches + 1 : 1;
  ranked_.push_back({next_use / equal, next_use, entry.last_use, slot, entry.version});
  return true;
}

}  // namespace spillway
