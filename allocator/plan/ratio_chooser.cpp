// SPDX-License-Identifier: Apache-2.0
#include "allocator/plan/ratio_chooser.h"

#include "allocator/base/number.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

namespace spillway {
namespace {

__extension__ using Wide = unsigned __int128;

constexpr unsigned kFractionBits = 40;

/// Maximum number of shapes; the least recently used ones are dropped.
constexpr std::size_t kMaxShapes = 256;

/// Of those that begin alike, the most recently used ones are candidates.
constexpr std::size_t kMaxCandidates = 8;

constexpr unsigned kMaxInARow = 64;

}  // namespace

Result<Ratio> Ratio::of(double value) {
  if (!(value >= 0.0 && value <= 1.0)) {
    return SPILLWAY_ERROR(Code::kInvalidArgument,
                          "offload ratio " + to_text(value) + ": expected a number from 0 to 1");
  }
  return Ratio(static_cast<std::uint64_t>(std::ldexp(value, kFractionBits)));
}

double Ratio::value() const {
  return std::ldexp(static_cast<double>(numerator_), -static_cast<int>(kFractionBits));
}

Bytes Ratio::share_of(Bytes total) const {
  return Bytes{static_cast<std::uint64_t>((Wide{total.count()} * numerator_) >> kFractionBits)};
}

RatioChooser::Choice RatioChooser::choose(Bytes size, std::optional<std::uint64_t> node) {
  narrow_candidates(size);
  const std::size_t index = sites_.size();
  const bool known = matches_known();
  Choice choice = known ? planned_choice(index) : Choice::kKeep;
  if (choice != Choice::kReferencedElsewhere) seen_bytes_ += size;

  while (!waiting_.empty() && fits(sites_[waiting_.front()].size)) {
    Site& first = sites_[waiting_.front()];
    first.choice = Choice::kOffload;
    offloaded_bytes_ += first.size;
    due_.push_back(waiting_.front());
    waiting_.pop_front();
  }
  if (!known && fits(size)) choice = Choice::kOffload;
  if (known && choice == Choice::kOffload && !(waiting_.empty() && fits(size))) {
    choice = Choice::kWait;
    waiting_.push_back(index);
  }
  if (choice == Choice::kOffload) offloaded_bytes_ += size;

  const bool equal = node && node == node_;
  const std::size_t node_index = index == 0 ? 0 : sites_.back().node_index + (equal ? 0 : 1);
  node_ = node;
  sites_.push_back({size, node_index, choice});
  return choice;
}

void RatioChooser::narrow_candidates(Bytes size) {
  const std::size_t index = sites_.size();
  if (index == 0) {
    for (Shape& shape : shapes_) {
      if (shape.front().size == size) candidates_.push_back(&shape);
      if (candidates_.size() == kMaxCandidates) return;
    }
    return;
  }
  const bool known = matches_known();
  std::erase_if(candidates_, [&](const Shape* shape) {
    return index >= shape->size() || (*shape)[index].size != size;
  });
  if (known && !matches_known()) ++mismatches_;
}

RatioChooser::Choice RatioChooser::planned_choice(std::size_t index) const {
  bool referenced_elsewhere = true;
  for (const Shape* const shape : candidates_) {
    if ((*shape)[index].offload) return Choice::kOffload;
    referenced_elsewhere = referenced_elsewhere && (*shape)[index].referenced_elsewhere;
  }
  return referenced_elsewhere ? Choice::kReferencedElsewhere : Choice::kKeep;
}

void RatioChooser::not_offloaded(std::size_t index) {
  SPILLWAY_CHECK(index < sites_.size());
  Site& site = sites_[index];
  if (site.choice != Choice::kOffload) return;
  site.choice = Choice::kKeep;
  offloaded_bytes_ -= site.size;
}

bool RatioChooser::alive_at_unpack(std::size_t index) {
  SPILLWAY_CHECK(index < sites_.size());
  sites_[index].alive = true;
  return sites_[index].choice != Choice::kReferencedElsewhere;
}

void RatioChooser::unreferenced(std::size_t index) {
  SPILLWAY_CHECK(index < sites_.size());
  sites_[index].unreferenced = true;
}

void RatioChooser::used_at_once(std::size_t index) {
  SPILLWAY_CHECK(index < sites_.size());
  sites_[index].at_once = true;
}

void RatioChooser::end_step() {
  if (sites_.empty()) return;
  const auto known = std::find_if(shapes_.begin(), shapes_.end(), [&](const Shape& shape) {
    return shape.size() == sites_.size() &&
           std::find(candidates_.begin(), candidates_.end(), &shape) != candidates_.end();
  });
  const bool is_new = known == shapes_.end();
  if (is_new) {
    if (shapes_.size() >= kMaxShapes) shapes_.pop_back();
    shapes_.emplace_front(sites_.size());
  } else {
    shapes_.splice(shapes_.begin(), shapes_, known);
  }
  Shape& shape = shapes_.front();
  bool news = is_new;
  for (std::size_t index = 0; index < sites_.size(); ++index) {
    const Planned before = shape[index];
    shape[index].learn(sites_[index]);
    news = news || !(shape[index] == before);
  }
  if (news) make_plan(shape);
  abandon_step();
}

void RatioChooser::Planned::learn(const Site& seen) {
  size = seen.size;
  node_index = seen.node_index;
  at_once = seen.at_once;
  if (referenced_elsewhere && seen.unreferenced && !seen.alive) {
    referenced_elsewhere = false;
    in_a_row = 0;
    needed = std::min(2 * needed, kMaxInARow);
  } else if (!referenced_elsewhere) {
    in_a_row = seen.alive ? in_a_row + 1 : 0;
    referenced_elsewhere = in_a_row >= needed;
  }
}

void RatioChooser::abandon_step() {
  sites_.clear();
  waiting_.clear();
  due_.clear();
  candidates_.clear();
  node_.reset();
  seen_bytes_ = Bytes{};
  offloaded_bytes_ = Bytes{};
}

void RatioChooser::make_plan(Shape& shape) const {
  Bytes offloadable;
  Bytes largest;
  std::vector<Planned*> order;
  for (Planned& site : shape) {
    site.offload = false;
    if (site.referenced_elsewhere) continue;
    offloadable += site.size;
    largest = std::max(largest, site.size);
    order.push_back(&site);
  }
  std::stable_sort(order.begin(), order.end(), [](const Planned* left, const Planned* right) {
    return left->node_index != right->node_index ? left->node_index < right->node_index
                                                 : left->size > right->size;
  });
  // Skipped storages did not fit: the rest of the share is smaller than each of them, and so than
  // the largest storage.
  Bytes rest = ratio_.share_of(offloadable);
  const auto take = [&](Planned& site) {
    if (site.size > rest) return;
    site.offload = true;
    rest -= site.size;
  };
  for (Planned* const site : order) {
    if (!site->at_once) take(*site);
  }
  for (Planned* const site : order) {
    if (site->at_once && (ratio_.one() || rest >= largest)) take(*site);
  }
}

}  // namespace spillway
