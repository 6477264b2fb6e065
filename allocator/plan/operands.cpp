// SPDX-License-Identifier: Apache-2.0
#include "allocator/plan/operands.h"

#include "allocator/plan/step_profile.h"

#include <algorithm>
#include <map>
#include <utility>

namespace spillway {
namespace {

constexpr std::size_t kNoProduct = StepCurve::Ask::kNoProduct;

/// A storage that was away is on the device again, until the place `to`.
struct Presence {
  std::size_t storage = 0;
  std::size_t from = 0;
  std::size_t to = 0;
  std::uint64_t bytes = 0;
  std::vector<StepCurve::Ask> asks{};  // in their order
};

using Presences = std::vector<std::vector<Presence>>;  // by storage, in order

Presences presences_of(const StepCurve& curve) {
  Presences all;
  for (const StepCurve::Absence& away : curve.absences) {
    if (all.size() <= away.storage) all.resize(away.storage + 1);
    auto& of_storage = all[away.storage];
    if (!of_storage.empty()) of_storage.back().to = away.from;
    of_storage.push_back({away.storage, away.to, curve.live.size(), away.bytes});
  }
  const auto later = [](std::size_t place, const Presence& each) {
    return place < each.from;
  };
  for (const StepCurve::Ask& ask : curve.asks) {
    if (ask.storage >= all.size()) continue;
    auto& of_storage = all[ask.storage];
    const auto next = std::upper_bound(of_storage.begin(), of_storage.end(), ask.place, later);
    if (next != of_storage.begin() && ask.place < std::prev(next)->to)
      std::prev(next)->asks.push_back(ask);
  }
  return all;
}

class Operands {
 public:
  explicit Operands(const StepCurve& curve) : presences_(presences_of(curve)) {}

  std::vector<Operand> find() {
    std::vector<const Presence*> latest_first;
    for (const auto& of_storage : presences_) {
      for (const Presence& each : of_storage)
        latest_first.push_back(&each);
    }
    // A product comes after what it is computed from.
    std::stable_sort(
        latest_first.begin(), latest_first.end(), [](const Presence* left, const Presence* right) {
          return left->from > right->from;
        });
    for (const Presence* const each : latest_first)
      add(*each);
    return in_order();
  }

 private:
  /// The presence of the product that was computed from what was asked for at this place.
  [[nodiscard]] const Presence* made_after(std::size_t product, std::size_t place) const {
    if (product >= presences_.size()) return nullptr;
    const auto& of_product = presences_[product];
    const auto next = std::lower_bound(
        of_product.begin(), of_product.end(), place, [](const Presence& each, std::size_t from) {
          return each.from < from;
        });
    return next == of_product.end() ? nullptr : &*next;
  }

  void add(const Presence& presence) {
    if (presence.asks.empty()) return;
    const std::size_t product = presence.asks.front().product;
    if (product == kNoProduct || presence.asks.front().place != presence.from) return;
    const Presence* const made = made_after(product, presence.from);
    if (made == nullptr || made->from <= presence.from) return;
    // Until anybody else wants it, or the same again.
    std::size_t end = presence.to;
    std::size_t again = presence.to;
    for (const StepCurve::Ask& ask : presence.asks) {
      if (ask.product != product) {
        end = ask.place;
        break;
      }
      if (again == presence.to && made_after(product, ask.place) != made) again = ask.place;
    }
    again = std::min(again, end);
    std::size_t from = presence.from;
    const auto put = [&](std::size_t to, std::size_t within) {
      if (to <= from) return;
      rows_[{presence.storage, presence.from}].push_back(found_.size());
      found_.push_back({presence.storage, from, to, presence.bytes, product, within});
      from = to;
    };
    const auto of_product = rows_.find({product, made->from});
    if (of_product != rows_.end()) {
      for (const std::size_t row : of_product->second)
        put(std::min(found_[row].to, again), row);
    }
    put(end, Operand::kAlways);
  }

  std::vector<Operand> in_order() const {
    std::vector<std::size_t> order(found_.size());
    for (std::size_t row = 0; row < order.size(); ++row)
      order[row] = row;
    std::sort(order.begin(), order.end(), [&](std::size_t left, std::size_t right) {
      return std::pair(found_[left].storage, found_[left].from) <
             std::pair(found_[right].storage, found_[right].from);
    });
    std::vector<std::size_t> now(found_.size());
    for (std::size_t place = 0; place < order.size(); ++place)
      now[order[place]] = place;
    std::vector<Operand> sorted;
    for (const std::size_t row : order) {
      Operand& operand = sorted.emplace_back(found_[row]);
      if (operand.within != Operand::kAlways) operand.within = now[operand.within];
    }
    return sorted;
  }

  const Presences presences_;
  std::vector<Operand> found_;
  /// Rows of `found_`, in their order, of what came back there.
  std::map<std::pair<std::size_t, std::size_t>, std::vector<std::size_t>> rows_;
};

}  // namespace

std::vector<Operand> operands_of(const StepCurve& curve) {
  return Operands(curve).find();
}

Bytes needed_so_far(const StepCurve& curve) {
  std::uint64_t needed = curve.live.empty() ? 0 : curve.live.back();
  for (const auto& of_storage : presences_of(curve)) {
    if (of_storage.empty() || of_storage.back().to < curve.live.size()) continue;
    const auto& asks = of_storage.back().asks;
    const bool for_products = std::all_of(asks.begin(), asks.end(), [](const StepCurve::Ask& ask) {
      return ask.product != kNoProduct;
    });
    if (for_products && !asks.empty()) needed -= std::min(needed, of_storage.back().bytes);
  }
  return Bytes{needed};
}

std::vector<bool> operands_in_use(const StepProfile& profile, const std::vector<Action>& actions) {
  const auto& operands = profile.memory.operands;
  std::vector<bool> in_use(operands.size());
  for (std::size_t row = 0; row < operands.size(); ++row) {
    bool all = true;
    for (std::size_t each = row; all && each != Operand::kAlways; each = operands[each].within)
      all = actions[operands[each].product] == Action::kRebuild;
    in_use[row] = all;
  }
  return in_use;
}

std::vector<std::size_t> wanted_places(const StepProfile& profile,
                                       const std::vector<Action>& actions) {
  std::vector<std::size_t> wanted;
  wanted.reserve(profile.storages.size());
  for (const StepProfile::Storage& storage : profile.storages)
    wanted.push_back(storage.wanted);
  const RecordedStep& memory = profile.memory;
  if (memory.operands.empty()) return wanted;
  const std::vector<bool> in_use = operands_in_use(profile, actions);
  auto away = memory.absences.begin();
  for (std::size_t row = 0; row < memory.operands.size(); ++row) {
    const Operand& operand = memory.operands[row];
    std::size_t& place = wanted[operand.storage];
    if (in_use[row] || operand.from != place) continue;
    place = operand.to;
    // It is away for longer where it was let go again.
    while (away != memory.absences.end() &&
           (away->storage < operand.storage ||
            (away->storage == operand.storage && away->from < place)))
      ++away;
    if (away != memory.absences.end() && away->storage == operand.storage && away->from == place)
      place = away->to;
  }
  return wanted;
}

}  // namespace spillway
