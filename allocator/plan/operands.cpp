// SPDX-License-Identifier: Apache-2.0
#include "allocator/plan/operands.h"

#include "allocator/plan/step_profile.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <set>
#include <utility>

namespace spillway {
namespace {

constexpr std::size_t kNoProduct = StepCurve::Ask::kNoProduct;

/// A period in which an offloaded storage is on the device again, until the event `to`.
struct Presence {
  std::size_t storage = 0;
  std::size_t from = 0;
  std::size_t to = 0;
  std::uint64_t bytes = 0;
  std::vector<StepCurve::Ask> asks{};  // in order
};

using Presences = std::vector<std::vector<Presence>>;  // by storage, in order

Presences presences_of(const StepCurve& curve) {
  Presences all;
  for (const StepCurve::Absence& offloaded : curve.absences) {
    if (all.size() <= offloaded.storage) all.resize(offloaded.storage + 1);
    auto& of_storage = all[offloaded.storage];
    if (!of_storage.empty()) of_storage.back().to = offloaded.from;
    of_storage.push_back(
        {offloaded.storage, offloaded.to, curve.allocated.size(), offloaded.bytes});
  }
  const auto later = [](std::size_t event, const Presence& each) {
    return event < each.from;
  };
  for (const StepCurve::Ask& ask : curve.asks) {
    if (ask.storage >= all.size()) continue;
    auto& of_storage = all[ask.storage];
    const auto next = std::upper_bound(of_storage.begin(), of_storage.end(), ask.event, later);
    if (next != of_storage.begin() && ask.event < std::prev(next)->to)
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
    // A product comes after its operands.
    std::stable_sort(
        latest_first.begin(), latest_first.end(), [](const Presence* left, const Presence* right) {
          return left->from > right->from;
        });
    for (const Presence* const each : latest_first)
      add(*each);
    return std::move(found_);
  }

 private:
  /// An interval from <= p < to in which it is present for this product.
  struct Stretch {
    std::size_t from;
    std::size_t to;
    Operand::Product product;
  };

  /// The presence of the product that was recomputed after the use at this event.
  [[nodiscard]] const Presence* made_after(std::size_t product, std::size_t event) const {
    if (product >= presences_.size()) return nullptr;
    const auto& of_product = presences_[product];
    const auto next = std::upper_bound(
        of_product.begin(), of_product.end(), event, [](std::size_t after, const Presence& each) {
          return after < each.from;
        });
    return next == of_product.end() ? nullptr : &*next;
  }

  /// The products that it is present for, from its fetch until its own use or release.
  [[nodiscard]] std::vector<Stretch> stretches_of(const Presence& presence) const {
    std::vector<Stretch> stretches;
    std::size_t end = presence.to;
    for (const StepCurve::Ask& ask : presence.asks) {
      const Presence* const made =
          ask.product == kNoProduct ? nullptr : made_after(ask.product, ask.event);
      if (made == nullptr) {
        end = ask.event;
        break;
      }
      std::size_t from = ask.event;
      const auto rows = found_at_.find({ask.product, made->from});
      if (rows != found_at_.end()) {
        for (std::size_t row = rows->second.second; row-- > rows->second.first;) {
          stretches.push_back({from, found_[row].to, {ask.product, row}});
          from = found_[row].to;
        }
      }
      stretches.push_back({from, presence.to, {ask.product, Operand::kAlways}});
    }
    for (Stretch& each : stretches)
      each.to = std::min(each.to, end);
    std::erase_if(stretches, [](const Stretch& each) { return each.from >= each.to; });
    return stretches;
  }

  void add(const Presence& presence) {
    if (presence.asks.empty() || presence.asks.front().event != presence.from) return;
    const std::vector<Stretch> stretches = stretches_of(presence);
    std::set<std::size_t> edges;
    for (const Stretch& each : stretches)
      edges.insert({each.from, each.to});
    const std::size_t first = found_.size();
    for (auto edge = edges.rbegin(); edge != edges.rend() && std::next(edge) != edges.rend();
         ++edge) {
      Operand operand{presence.storage, *std::next(edge), *edge, presence.bytes};
      auto& products = operand.products;
      for (const Stretch& each : stretches) {
        const bool covers = each.from <= operand.from && operand.to <= each.to;
        if (covers && std::find(products.begin(), products.end(), each.product) == products.end())
          products.push_back(each.product);
      }
      found_.push_back(std::move(operand));
    }
    found_at_[{presence.storage, presence.from}] = {first, found_.size()};
  }

  const Presences presences_;
  std::vector<Operand> found_;
  /// Range in `found_` of the operands for storages that became present there.
  std::map<std::pair<std::size_t, std::size_t>, std::pair<std::size_t, std::size_t>> found_at_;
};

}  // namespace

std::vector<Operand> operands_of(const StepCurve& curve) {
  return Operands(curve).find();
}

std::vector<std::size_t> operands_only_of(const StepCurve& curve) {
  std::set<std::size_t> only;
  std::set<std::size_t> used;
  for (const StepCurve::Ask& ask : curve.asks)
    (ask.product == kNoProduct ? used : only).insert(ask.storage);
  std::erase_if(only, [&](std::size_t storage) { return used.contains(storage); });
  return {only.begin(), only.end()};
}

Bytes needed_so_far(const StepCurve& curve) {
  std::uint64_t needed = curve.allocated.empty() ? 0 : curve.allocated.back();
  for (const auto& of_storage : presences_of(curve)) {
    if (of_storage.empty()) continue;
    const auto& asks = of_storage.back().asks;
    const bool for_products = std::all_of(asks.begin(), asks.end(), [](const StepCurve::Ask& ask) {
      return ask.product != kNoProduct;
    });
    if (for_products && !asks.empty()) needed -= std::min(needed, of_storage.back().bytes);
  }
  return Bytes{needed};
}

std::vector<bool> operands_in_use(const StepProfile& profile, const std::vector<Action>& actions) {
  std::vector<bool> in_use;
  for (const Operand& operand : profile.memory.operands) {
    const auto& products = operand.products;
    in_use.push_back(
        std::any_of(products.begin(), products.end(), [&](const Operand::Product& product) {
          return actions[product.storage] == Action::kRecompute &&
                 (product.within == Operand::kAlways || in_use[product.within]);
        }));
  }
  return in_use;
}

std::size_t offloaded_until(const StepProfile& profile, const Operand& operand) {
  const std::vector<Window>& windows = profile.candidates[operand.storage].windows;
  const auto again = std::lower_bound(
      windows.begin(), windows.end(), operand.to, [](const Window& window, std::size_t event) {
        return window.from < event;
      });
  return again != windows.end() && again->from == operand.to ? again->to : operand.to;
}

ComputedLater computed_later(const StepProfile& profile, const Operand& operand) {
  return {offloaded_until(profile, operand), profile.memory.besides[operand.storage]};
}

std::vector<std::size_t> first_uses(const StepProfile& profile,
                                    const std::vector<Action>& actions) {
  return first_uses(profile, actions, operands_in_use(profile, actions));
}

std::vector<std::size_t> first_uses(const StepProfile& profile,
                                    const std::vector<Action>& actions,
                                    const std::vector<bool>& in_use) {
  std::vector<std::size_t> first_use;
  first_use.reserve(profile.candidates.size());
  for (std::size_t candidate = 0; candidate < profile.candidates.size(); ++candidate)
    first_use.push_back(profile.first_use(candidate));
  for (std::size_t each = in_use.size(); each-- > 0;) {
    const Operand& operand = profile.memory.operands[each];
    std::size_t& event = first_use[operand.storage];
    if (!in_use[each] && operand.from == event) event = offloaded_until(profile, operand);
  }
  std::vector<bool> used(profile.candidates.size());
  for (std::size_t each = 0; each < in_use.size(); ++each)
    if (in_use[each]) used[profile.memory.operands[each].storage] = true;
  for (const std::size_t storage : profile.memory.operands_only)
    if (!used[storage]) first_use[storage] = profile.events();
  // A product that is recomputed later than recorded uses its operands then. It has the earlier
  // rows.
  for (std::size_t each = 0; each < in_use.size(); ++each) {
    if (in_use[each]) continue;
    const Operand& operand = profile.memory.operands[each];
    for (const Operand::Product& product : operand.products) {
      const std::size_t later = first_use[product.storage];
      if (actions[product.storage] == Action::kRecompute && later >= operand.to)
        first_use[operand.storage] = std::min(first_use[operand.storage], later);
    }
  }
  return first_use;
}

}  // namespace spillway
