// SPDX-License-Identifier: Apache-2.0
#include "torch_glue/model_state/access_order.h"

#include <algorithm>
#include <utility>

namespace spillway {
namespace {

/// A step that differs from the recorded one is followed across this many uses.
constexpr std::size_t kMostSkipped = 64;

}  // namespace

void AccessOrder::use(Id id) {
  // A program that only evaluates ends no step.
  if (running_.size() < kMostUses) running_.push_back(id);
  follow(id);
}

void AccessOrder::follow(Id id) {
  if (last_.empty()) return;
  // Used once more than in the recorded step.
  const std::size_t before = place_ == 0 ? last_.size() - 1 : place_ - 1;
  if (last_[place_] != id && last_[before] == id) return;
  std::size_t at = place_;
  for (std::size_t skipped = 0; skipped < std::min(kMostSkipped, last_.size()); ++skipped) {
    if (last_[at] == id) {
      pass_over(skipped);
      place_ = at + 1 == last_.size() ? 0 : at + 1;
      passed_ += skipped + 1;
      return;
    }
    if (++at == last_.size()) at = 0;
  }
}

void AccessOrder::pass_over(std::size_t count) {
  if (count == 0 || all_changed_) return;
  if (passed_over_.size() + count > last_.size()) {
    all_changed_ = true;
    passed_over_.clear();
    return;
  }
  for (std::size_t i = 0; i < count; ++i)
    passed_over_.push_back(last_[(place_ + i) % last_.size()]);
}

void AccessOrder::end_step() {
  if (running_.empty()) return;
  const bool repeated = running_ == last_;
  if (!repeated) {
    last_.swap(running_);
    places_.clear();
    for (std::size_t place = 0; place < last_.size(); ++place)
      places_[last_[place]].push_back(place);
  }
  running_.clear();
  if (repeated && place_ == 0) return;
  place_ = 0;
  all_changed_ = true;
  passed_over_.clear();
}

std::uint64_t AccessOrder::distance(Id id) const {
  if (last_.empty()) return 0;
  const auto found = places_.find(id);
  if (found == places_.end()) return kUnknown;
  const std::vector<std::size_t>& places = found->second;
  const auto next = std::lower_bound(places.begin(), places.end(), place_);
  return next != places.end() ? *next - place_ : last_.size() - place_ + places.front();
}

std::uint64_t AccessOrder::next_use(Id id) const {
  if (last_.empty()) return 0;
  const std::uint64_t uses = distance(id);
  return uses == kUnknown ? kUnknown : passed_ + uses;
}

bool AccessOrder::take_changed(std::vector<Id>& changed) {
  changed = std::exchange(passed_over_, {});
  return !std::exchange(all_changed_, false);
}

}  // namespace spillway
