// SPDX-License-Identifier: Apache-2.0
#include "allocator/lifetime/live_curve.h"

#include <algorithm>
#include <utility>

namespace spillway {
namespace {

/// 32 MiB of places. A step with more is not one: it never ends.
constexpr std::size_t kMostPlaces = std::size_t{1} << 22U;

}  // namespace

Bytes StepCurve::peak() const {
  const auto most = std::max_element(live.begin(), live.end());
  return Bytes{most == live.end() ? 0 : *most};
}

Bytes StepCurve::tail_peak() const {
  std::uint64_t most = 0;
  for (std::size_t place = tail; place < live.size(); ++place)
    most = std::max(most, live[place]);
  return Bytes{most};
}

void LiveCurve::begin(std::uint64_t step, Bytes live) {
  const Lock lock(mutex_);
  if (on()) return;
  step_ = step;
  curve_ = {};
  tail_.reset();
  curve_.live.push_back(live.count());
  on_ = true;
}

void LiveCurve::begin_tail() {
  const Lock lock(mutex_);
  if (on() && !tail_) tail_ = curve_.live.size();
}

bool LiveCurve::in_tail() const {
  const Lock lock(mutex_);
  return on() && tail_.has_value();
}

StepCurve LiveCurve::end(bool with_tail) {
  const Lock lock(mutex_);
  if (!on_.exchange(false)) return {};
  end_absences(curve_);
  watched_.clear();
  away_.clear();
  if (curve_.live.size() > kMostPlaces) curve_ = {};
  if (tail_ && !with_tail && *tail_ < curve_.live.size()) {
    curve_.live.resize(*tail_);
    for (StepCurve::Absence& away : curve_.absences) {
      away.from = std::min(away.from, *tail_);
      away.to = std::min(away.to, *tail_);
    }
  }
  curve_.tail = std::min(tail_.value_or(curve_.live.size()), curve_.live.size());
  return std::exchange(curve_, {});
}

void LiveCurve::end_absences(StepCurve& curve) const {
  for (const auto& [storage, away] : away_)
    curve.absences.push_back({storage, away.from, curve.live.size(), away.bytes});
}

StepCurve LiveCurve::so_far() const {
  const Lock lock(mutex_);
  if (!on() || curve_.live.size() > kMostPlaces) return {};
  StepCurve curve = curve_;
  end_absences(curve);
  curve.tail = curve.live.size();
  return curve;
}

void LiveCurve::put(std::uint64_t live) {
  if (curve_.live.size() <= kMostPlaces) curve_.live.push_back(live);
}

void LiveCurve::born(Bytes bytes) {
  const Lock lock(mutex_);
  if (on()) put(curve_.live.back() + bytes.count());
}

void LiveCurve::died(std::uint64_t address, Bytes bytes) {
  const Lock lock(mutex_);
  if (!on()) return;
  // What was born before the step counts in the bytes that it began with.
  put(curve_.live.back() - std::min(curve_.live.back(), bytes.count()));
  const auto watched = watched_.find(address);
  if (watched == watched_.end()) return;
  const auto away = away_.find(watched->second);
  change_away(watched->second, bytes.count() + (away == away_.end() ? 0 : away->second.bytes));
  watched_.erase(watched);
}

void LiveCurve::settle(Bytes live) {
  const Lock lock(mutex_);
  if (on()) curve_.live.back() = live.count();
}

void LiveCurve::watch(std::uint64_t step, std::uint64_t address, std::size_t storage) {
  const Lock lock(mutex_);
  if (on() && step == step_) watched_[address] = storage;
}

void LiveCurve::present(std::uint64_t step, std::size_t storage, Bytes lacking) {
  const Lock lock(mutex_);
  // The last event is its block's birth.
  if (on() && step == step_ && away_.contains(storage)) change_away(storage, lacking.count());
}

void LiveCurve::asked(std::uint64_t step, std::size_t storage, std::size_t product) {
  const Lock lock(mutex_);
  if (!on() || step != step_) return;
  // Without the later ones the earlier ones would say too much.
  if (curve_.asks.size() >= kMostPlaces) curve_.asks.clear();
  curve_.asks.push_back({storage, curve_.live.size() - 1, product});
}

void LiveCurve::computed(std::uint64_t step, std::size_t storage, std::size_t since) {
  const Lock lock(mutex_);
  if (!on() || step != step_ || since >= curve_.live.size()) return;
  const auto begin = curve_.live.begin() + static_cast<std::ptrdiff_t>(since);
  const std::uint64_t most = *std::max_element(begin, curve_.live.end()) - curve_.live.back();
  if (curve_.besides.size() <= storage) curve_.besides.resize(storage + 1);
  curve_.besides[storage] = std::max(curve_.besides[storage], most);
}

void LiveCurve::change_away(std::size_t storage, std::uint64_t bytes) {
  const std::size_t place = curve_.live.size() - 1;
  const auto away = away_.find(storage);
  if (away != away_.end()) {
    curve_.absences.push_back({storage, away->second.from, place, away->second.bytes});
    away_.erase(away);
  }
  if (bytes > 0) away_.emplace(storage, Away{place, bytes});
}

Bytes LiveCurve::live_at_begin() const {
  const Lock lock(mutex_);
  return Bytes{on() ? curve_.live.front() : 0};
}

Bytes LiveCurve::peak() const {
  const Lock lock(mutex_);
  return on() ? curve_.peak() : Bytes{};
}

std::size_t LiveCurve::place() const {
  const Lock lock(mutex_);
  return on() ? curve_.live.size() - 1 : 0;
}

Bytes LiveCurve::live() const {
  const Lock lock(mutex_);
  return Bytes{on() ? curve_.live.back() : 0};
}

}  // namespace spillway
