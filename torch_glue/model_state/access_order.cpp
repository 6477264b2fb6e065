// SPDX-License-Identifier: Apache-2.0
#include "torch_glue/model_state/access_order.h"

#include <algorithm>
#include <limits>

namespace spillway {
namespace {

/// A step that differs from the recorded one is followed across this many uses.
constexpr std::size_t kMostSkipped = 64;

}  // namespace

void AccessOrder::use(Id id) {
  if (!running_.empty() && running_.back() == id) return;
  running_.push_back(id);
  follow(id);
}

void AccessOrder::follow(Id id) {
  for (std::size_t skipped = 0; skipped < std::min(kMostSkipped, last_.size()); ++skipped) {
    if (last_[(place_ + skipped) % last_.size()] != id) continue;
    place_ = (place_ + skipped + 1) % last_.size();
    return;
  }
}

void AccessOrder::end_step() {
  if (running_.empty()) return;
  last_.swap(running_);
  running_.clear();
  places_.clear();
  for (std::size_t place = 0; place < last_.size(); ++place)
    places_[last_[place]].push_back(place);
  place_ = 0;
}

std::size_t AccessOrder::distance(Id id) const {
  if (last_.empty()) return 0;
  const auto found = places_.find(id);
  if (found == places_.end()) return std::numeric_limits<std::size_t>::max();
  const std::vector<std::size_t>& places = found->second;
  const auto next = std::lower_bound(places.begin(), places.end(), place_);
  return next != places.end() ? *next - place_ : last_.size() - place_ + places.front();
}

}  // namespace spillway
