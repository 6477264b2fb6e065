// SPDX-License-Identifier: Apache-2.0
#include "allocator/lifetime/allocation_curve.h"

#include <algorithm>
#include <utility>

namespace spillway {
namespace {

/// 32 MiB of events. A sequence with more events is not a step: it never ends.
constexpr std::size_t kMaxEvents = std::size_t{1} << 22U;

}  // namespace

std::size_t StepCurve::place_of_peak(std::size_t from) const {
  std::size_t place = from;
  for (std::size_t event = from; event < allocated.size(); ++event)
    if (at(event) > at(place)) place = event;
  return place;
}

Bytes StepCurve::peak() const {
  return Bytes{allocated.empty() ? 0 : at(place_of_peak(0))};
}

Bytes StepCurve::saved_at_peak() const {
  const std::size_t peak = place_of_peak(0);
  std::uint64_t bytes = 0;
  for (const Saved& each : saved) {
    if (each.event > peak) break;
    bytes = each.bytes;
  }
  return Bytes{bytes};
}

Bytes StepCurve::model_state_at_peak() const {
  const auto most = std::max_element(allocated.begin(), allocated.end());
  return most == allocated.end() ? Bytes{} : peak() - Bytes{*most};
}

Bytes StepCurve::optimizer_phase_peak() const {
  return Bytes{optimizer_begin < allocated.size() ? at(place_of_peak(optimizer_begin)) : 0};
}

Bytes StepCurve::at_begin() const {
  return Bytes{allocated.empty() ? 0 : at(0)};
}

void AllocationCurve::begin(std::uint64_t step, Bytes allocated) {
  const Lock lock(mutex_);
  if (on()) return;
  step_ = step;
  curve_ = {};
  optimizer_begin_.reset();
  became_.clear();
  became_bytes_ = 0;
  used_.clear();
  recent_peak_ = 0;
  put(allocated.count());
  on_ = true;
}

void AllocationCurve::begin_optimizer_phase() {
  const Lock lock(mutex_);
  if (on() && !optimizer_begin_) optimizer_begin_ = curve_.allocated.size();
}

bool AllocationCurve::in_optimizer_phase() const {
  const Lock lock(mutex_);
  return on() && optimizer_begin_.has_value();
}

StepCurve AllocationCurve::end(bool with_optimizer_phase) {
  const Lock lock(mutex_);
  if (!on_.exchange(false)) return {};
  end_absences(curve_);
  take_uses(curve_);
  saved_.clear();
  offloaded_.clear();
  watched_.clear();
  if (curve_.allocated.size() > kMaxEvents) curve_ = {};
  if (optimizer_begin_ && !with_optimizer_phase && *optimizer_begin_ < curve_.allocated.size()) {
    curve_.allocated.resize(*optimizer_begin_);
    if (!curve_.model_state.empty()) curve_.model_state.resize(*optimizer_begin_);
    for (StepCurve::Absence& offloaded : curve_.absences) {
      offloaded.from = std::min(offloaded.from, *optimizer_begin_);
      offloaded.to = std::min(offloaded.to, *optimizer_begin_);
    }
  }
  curve_.optimizer_begin =
      std::min(optimizer_begin_.value_or(curve_.allocated.size()), curve_.allocated.size());
  return std::exchange(curve_, {});
}

void AllocationCurve::end_absences(StepCurve& curve) const {
  for (const auto& [storage, offloaded] : offloaded_)
    curve.absences.push_back({storage, offloaded.from, curve.allocated.size(), offloaded.bytes});
}

void AllocationCurve::take_uses(StepCurve& curve) {
  for (auto& [storage, used] : used_) {
    used.uses.last = used.idle_from != 0 ? used.idle_from : curve.allocated.size();
    curve.model_state_uses.push_back(used.uses);
  }
  used_.clear();
  std::sort(curve.model_state_uses.begin(),
            curve.model_state_uses.end(),
            [](const auto& left, const auto& right) {
              return std::pair(left.first, left.storage) < std::pair(right.first, right.storage);
            });
}

void AllocationCurve::model_state_used(std::uint64_t storage, Bytes bytes, bool written) {
  const Lock lock(mutex_);
  if (!on() || optimizer_begin_) return;
  const std::size_t now = curve_.allocated.size();
  UsedModelState& used = used_[storage];
  StepCurve::ModelStateUses& uses = used.uses;
  if (used.count == 0) uses = {storage, bytes.count(), now};
  const std::size_t from = std::exchange(used.idle_from, 0);
  if (from != 0 && now - from > uses.to - uses.from) {
    uses.from = from;
    uses.to = now;
    uses.before = used.count;
  }
  ++used.count;
  uses.written = uses.written || written;
}

void AllocationCurve::model_state_idle(std::uint64_t storage) {
  const Lock lock(mutex_);
  const auto used = used_.find(storage);
  if (!on() || optimizer_begin_ || used == used_.end()) return;
  used->second.idle_from = curve_.allocated.size();
}

StepCurve AllocationCurve::so_far() const {
  const Lock lock(mutex_);
  if (!on() || curve_.allocated.size() > kMaxEvents) return {};
  StepCurve curve = curve_;
  end_absences(curve);
  curve.optimizer_begin = curve.allocated.size();
  return curve;
}

void AllocationCurve::put(std::uint64_t allocated) {
  if (curve_.allocated.size() > kMaxEvents) return;
  curve_.allocated.push_back(allocated);
  const auto became = static_cast<std::uint64_t>(became_bytes_);
  recent_peak_ = std::max(recent_peak_, allocated - std::min(allocated, became));
  if (model_state_ == 0 && curve_.model_state.empty()) return;
  curve_.model_state.resize(curve_.allocated.size() - 1);
  curve_.model_state.push_back(model_state_ - became_bytes_);
}

void AllocationCurve::set_model_state(Bytes bytes) {
  const Lock lock(mutex_);
  model_state_ = static_cast<std::int64_t>(bytes.count());
  if (!on() || curve_.allocated.size() > kMaxEvents) return;
  if (model_state_ == 0 && curve_.model_state.empty()) return;
  curve_.model_state.resize(curve_.allocated.size());
  curve_.model_state.back() = std::max(curve_.model_state.back(), model_state_ - became_bytes_);
}

void AllocationCurve::became_model_state(std::uint64_t address, Bytes bytes) {
  const Lock lock(mutex_);
  if (!on() || !became_.emplace(address, bytes.count()).second) return;
  became_bytes_ += static_cast<std::int64_t>(bytes.count());
}

void AllocationCurve::model_state_died(std::uint64_t address) {
  const Lock lock(mutex_);
  const auto found = became_.find(address);
  if (found == became_.end()) return;
  const std::uint64_t bytes = found->second;
  became_.erase(found);
  became_bytes_ -= static_cast<std::int64_t>(bytes);
  model_state_ -= static_cast<std::int64_t>(bytes);
  if (on()) put(curve_.allocated.back() - std::min(curve_.allocated.back(), bytes));
}

void AllocationCurve::born(Bytes bytes) {
  const Lock lock(mutex_);
  if (on()) put(curve_.allocated.back() + bytes.count());
}

void AllocationCurve::died(std::uint64_t address, Bytes bytes) {
  const Lock lock(mutex_);
  if (!on()) return;
  // Blocks allocated before the step are part of its initial bytes.
  put(curve_.allocated.back() - std::min(curve_.allocated.back(), bytes.count()));
  const auto saved = saved_.find(address);
  if (saved == saved_.end()) return;
  const SavedBlock block = saved->second;
  saved_.erase(saved);
  add_saved(-block.bytes);
  if (!block.storage) return;
  const auto offloaded = offloaded_.find(*block.storage);
  change_offloaded(*block.storage,
                   bytes.count() + (offloaded == offloaded_.end() ? 0 : offloaded->second.bytes));
}

void AllocationCurve::settle(Bytes allocated) {
  const Lock lock(mutex_);
  if (on()) curve_.allocated.back() = allocated.count();
}

void AllocationCurve::saved(std::uint64_t step, std::uint64_t address, Bytes bytes) {
  const Lock lock(mutex_);
  if (on() && step == step_) save(address, bytes);
}

void AllocationCurve::watch(std::uint64_t step,
                            std::uint64_t address,
                            std::size_t storage,
                            Bytes bytes) {
  const Lock lock(mutex_);
  if (!on() || step != step_) return;
  save(address, bytes).storage = storage;
  watched_[storage] = address;
}

void AllocationCurve::present(std::uint64_t step, std::size_t storage, Bytes still_offloaded) {
  const Lock lock(mutex_);
  // The last event is its block's allocation.
  if (on() && step == step_ && offloaded_.contains(storage))
    change_offloaded(storage, still_offloaded.count());
}

void AllocationCurve::ended(std::uint64_t step, std::size_t storage) {
  const Lock lock(mutex_);
  if (!on() || step != step_) return;
  if (offloaded_.contains(storage)) change_offloaded(storage, 0);
  const auto watched = watched_.find(storage);
  if (watched == watched_.end()) return;
  const auto block = saved_.find(watched->second);
  if (block != saved_.end() && block->second.storage == storage) block->second.storage.reset();
  watched_.erase(watched);
}

void AllocationCurve::asked(std::uint64_t step, std::size_t storage, std::size_t product) {
  const Lock lock(mutex_);
  if (!on() || step != step_) return;
  // Without the later uses the earlier ones would be misleading.
  if (curve_.asks.size() >= kMaxEvents) curve_.asks.clear();
  curve_.asks.push_back({storage, curve_.allocated.size() - 1, product});
}

void AllocationCurve::computed(std::uint64_t step, std::size_t storage, std::size_t since) {
  const Lock lock(mutex_);
  if (!on() || step != step_ || since >= curve_.allocated.size()) return;
  const auto begin = curve_.allocated.begin() + static_cast<std::ptrdiff_t>(since);
  const std::uint64_t most =
      *std::max_element(begin, curve_.allocated.end()) - curve_.allocated.back();
  if (curve_.besides.size() <= storage) curve_.besides.resize(storage + 1);
  curve_.besides[storage] = std::max(curve_.besides[storage], most);
}

AllocationCurve::SavedBlock& AllocationCurve::save(std::uint64_t address, Bytes bytes) {
  SavedBlock& block = saved_[address];
  add_saved(bytes.count() - std::exchange(block.bytes, bytes.count()));
  return block;
}

void AllocationCurve::add_saved(std::uint64_t bytes) {
  if (curve_.allocated.size() > kMaxEvents) return;
  const std::uint64_t before = curve_.saved.empty() ? 0 : curve_.saved.back().bytes;
  curve_.saved.push_back({curve_.allocated.size() - 1, before + bytes});
}

void AllocationCurve::change_offloaded(std::size_t storage, std::uint64_t bytes) {
  const std::size_t event = curve_.allocated.size() - 1;
  const auto offloaded = offloaded_.find(storage);
  if (offloaded != offloaded_.end()) {
    curve_.absences.push_back({storage, offloaded->second.from, event, offloaded->second.bytes});
    offloaded_.erase(offloaded);
  }
  if (bytes > 0) offloaded_.emplace(storage, Offloaded{event, bytes});
}

Bytes AllocationCurve::allocated_at_begin() const {
  const Lock lock(mutex_);
  return Bytes{on() ? curve_.allocated.front() : 0};
}

Bytes AllocationCurve::peak() const {
  const Lock lock(mutex_);
  return on() ? curve_.peak() : Bytes{};
}

Bytes AllocationCurve::take_recent_peak() {
  const Lock lock(mutex_);
  return Bytes{std::exchange(recent_peak_, 0)};
}

std::size_t AllocationCurve::event() const {
  const Lock lock(mutex_);
  return on() ? curve_.allocated.size() - 1 : 0;
}

Bytes AllocationCurve::allocated() const {
  const Lock lock(mutex_);
  return Bytes{on() ? curve_.allocated.back() : 0};
}

}  // namespace spillway
