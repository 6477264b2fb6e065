// SPDX-License-Identifier: Apache-2.0
#include "allocator/lifetime/allocation_curve.h"

#include <algorithm>
#include <utility>

namespace spillway {
namespace {

/// 32 MiB of events. A sequence with more events is not a step: it never ends.
constexpr std::size_t kMaxPlaces = std::size_t{1} << 22U;

}  // namespace

Bytes StepCurve::peak() const {
  const auto most = std::max_element(live.begin(), live.end());
  return Bytes{most == live.end() ? 0 : *most};
}

Bytes StepCurve::optimizer_phase_peak() const {
  std::uint64_t most = 0;
  for (std::size_t place = tail; place < live.size(); ++place)
    most = std::max(most, live[place]);
  return Bytes{most};
}

void AllocationCurve::begin(std::uint64_t step, Bytes live) {
  const Lock lock(mutex_);
  if (on()) return;
  step_ = step;
  curve_ = {};
  tail_.reset();
  curve_.live.push_back(live.count());
  on_ = true;
}

void AllocationCurve::begin_optimizer_phase() {
  const Lock lock(mutex_);
  if (on() && !tail_) tail_ = curve_.live.size();
}

bool AllocationCurve::in_optimizer_phase() const {
  const Lock lock(mutex_);
  return on() && tail_.has_value();
}

StepCurve AllocationCurve::end(bool with_optimizer_phase) {
  const Lock lock(mutex_);
  if (!on_.exchange(false)) return {};
  end_absences(curve_);
  watched_.clear();
  offloaded_.clear();
  if (curve_.live.size() > kMaxPlaces) curve_ = {};
  if (tail_ && !with_optimizer_phase && *tail_ < curve_.live.size()) {
    curve_.live.resize(*tail_);
    for (StepCurve::Absence& offloaded : curve_.absences) {
      offloaded.from = std::min(offloaded.from, *tail_);
      offloaded.to = std::min(offloaded.to, *tail_);
    }
  }
  curve_.tail = std::min(tail_.value_or(curve_.live.size()), curve_.live.size());
  return std::exchange(curve_, {});
}

void AllocationCurve::end_absences(StepCurve& curve) const {
  for (const auto& [storage, offloaded] : offloaded_)
    curve.absences.push_back({storage, offloaded.from, curve.live.size(), offloaded.bytes});
}

StepCurve AllocationCurve::so_far() const {
  const Lock lock(mutex_);
  if (!on() || curve_.live.size() > kMaxPlaces) return {};
  StepCurve curve = curve_;
  end_absences(curve);
  curve.tail = curve.live.size();
  return curve;
}

void AllocationCurve::put(std::uint64_t live) {
  if (curve_.live.size() <= kMaxPlaces) curve_.live.push_back(live);
}

void AllocationCurve::born(Bytes bytes) {
  const Lock lock(mutex_);
  if (on()) put(curve_.live.back() + bytes.count());
}

void AllocationCurve::died(std::uint64_t address, Bytes bytes) {
  const Lock lock(mutex_);
  if (!on()) return;
  // Blocks allocated before the step are part of its initial bytes.
  put(curve_.live.back() - std::min(curve_.live.back(), bytes.count()));
  const auto watched = watched_.find(address);
  if (watched == watched_.end()) return;
  const auto offloaded = offloaded_.find(watched->second);
  change_offloaded(watched->second,
                   bytes.count() + (offloaded == offloaded_.end() ? 0 : offloaded->second.bytes));
  watched_.erase(watched);
}

void AllocationCurve::settle(Bytes live) {
  const Lock lock(mutex_);
  if (on()) curve_.live.back() = live.count();
}

void AllocationCurve::watch(std::uint64_t step, std::uint64_t address, std::size_t storage) {
  const Lock lock(mutex_);
  if (on() && step == step_) watched_[address] = storage;
}

void AllocationCurve::present(std::uint64_t step, std::size_t storage, Bytes lacking) {
  const Lock lock(mutex_);
  // The last event is its block's allocation.
  if (on() && step == step_ && offloaded_.contains(storage))
    change_offloaded(storage, lacking.count());
}

void AllocationCurve::asked(std::uint64_t step, std::size_t storage, std::size_t product) {
  const Lock lock(mutex_);
  if (!on() || step != step_) return;
  // Without the later uses the earlier ones would be misleading.
  if (curve_.asks.size() >= kMaxPlaces) curve_.asks.clear();
  curve_.asks.push_back({storage, curve_.live.size() - 1, product});
}

void AllocationCurve::computed(std::uint64_t step, std::size_t storage, std::size_t since) {
  const Lock lock(mutex_);
  if (!on() || step != step_ || since >= curve_.live.size()) return;
  const auto begin = curve_.live.begin() + static_cast<std::ptrdiff_t>(since);
  const std::uint64_t most = *std::max_element(begin, curve_.live.end()) - curve_.live.back();
  if (curve_.besides.size() <= storage) curve_.besides.resize(storage + 1);
  curve_.besides[storage] = std::max(curve_.besides[storage], most);
}

void AllocationCurve::change_offloaded(std::size_t storage, std::uint64_t bytes) {
  const std::size_t place = curve_.live.size() - 1;
  const auto offloaded = offloaded_.find(storage);
  if (offloaded != offloaded_.end()) {
    curve_.absences.push_back({storage, offloaded->second.from, place, offloaded->second.bytes});
    offloaded_.erase(offloaded);
  }
  if (bytes > 0) offloaded_.emplace(storage, Away{place, bytes});
}

Bytes AllocationCurve::allocated_at_begin() const {
  const Lock lock(mutex_);
  return Bytes{on() ? curve_.live.front() : 0};
}

Bytes AllocationCurve::peak() const {
  const Lock lock(mutex_);
  return on() ? curve_.peak() : Bytes{};
}

std::size_t AllocationCurve::place() const {
  const Lock lock(mutex_);
  return on() ? curve_.live.size() - 1 : 0;
}

Bytes AllocationCurve::live() const {
  const Lock lock(mutex_);
  return Bytes{on() ? curve_.live.back() : 0};
}

}  // namespace spillway
