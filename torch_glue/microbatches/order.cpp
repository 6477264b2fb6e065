// SPDX-License-Identifier: Apache-2.0
#include "torch_glue/microbatches/order.h"

#include <algorithm>
#include <utility>

namespace spillway {
namespace {

/// The micro-batches whose backward pass directly follows their forward pass.
template <typename Runs>
std::set<std::uint32_t> straight_in(const Runs& runs) {
  std::set<std::uint32_t> straight;
  std::set<std::uint32_t> begun;  // their backward pass
  for (std::size_t at = 0; at < runs.size(); ++at) {
    if (!runs[at].backward || !begun.insert(runs[at].unit.batch).second) continue;
    if (at > 0 && !runs[at - 1].backward && runs[at - 1].unit.batch == runs[at].unit.batch) {
      straight.insert(runs[at].unit.batch);
    }
  }
  return straight;
}

}  // namespace

void UnitOrder::begin_step() {
  if (!runs_.empty()) expected_ = std::exchange(runs_, {});
  as_expected_ = !expected_.empty();
  straight_ = straight_in(expected_);
  waiting_.clear();
}

void UnitOrder::note(Run run) {
  as_expected_ = as_expected_ && runs_.size() < expected_.size() && expected_[runs_.size()] == run;
  runs_.push_back(run);
}

void UnitOrder::forward(UnitKey unit) {
  note({false, unit});
  waiting_.insert(unit);
}

void UnitOrder::backward(UnitKey unit) {
  note({true, unit});
  waiting_.erase(unit);
}

std::vector<UnitKey> UnitOrder::backward_within(std::size_t horizon) const {
  if (!as_expected_) return guess(horizon);
  std::vector<UnitKey> soon;
  const std::size_t end = std::min(expected_.size(), runs_.size() + horizon);
  for (std::size_t at = runs_.size(); at < end; ++at) {
    if (expected_[at].backward) soon.push_back(expected_[at].unit);
  }
  return soon;
}

std::vector<UnitKey> UnitOrder::guess(std::size_t horizon) const {
  if (runs_.empty() || !runs_.back().backward) return {};
  const std::uint32_t running = runs_.back().unit.batch;
  const bool oldest_first = std::none_of(
      waiting_.begin(), waiting_.end(), [&](UnitKey one) { return one.batch < running; });
  std::vector<UnitKey> soon(waiting_.begin(), waiting_.end());
  std::sort(soon.begin(), soon.end(), [&](UnitKey a, UnitKey b) {
    if (a.batch == b.batch) return a.layer > b.layer;
    if (a.batch == running || b.batch == running) return a.batch == running;
    return oldest_first ? a.batch < b.batch : a.batch > b.batch;
  });
  soon.resize(std::min(soon.size(), horizon));
  return soon;
}

bool UnitOrder::keeps_resident(UnitKey unit, std::size_t horizon) const {
  if (!as_expected_) return false;
  if (straight_.contains(unit.batch)) return true;
  const auto soon = backward_within(horizon);
  return std::find(soon.begin(), soon.end(), unit) != soon.end();
}

std::size_t UnitOrder::batches() const {
  std::set<std::uint32_t> batches;
  for (const Run& run : runs_)
    batches.insert(run.unit.batch);
  return batches.size();
}

std::size_t UnitOrder::straight() const {
  return straight_in(runs_).size();
}

}  // namespace spillway
