// SPDX-License-Identifier: Apache-2.0
#include "allocator/plan/operands_in_use.h"

#include <algorithm>
#include <numeric>

namespace spillway {

/// A concatenation of lists of numbers.
class OperandsInUse::Lists {
 public:
  /// `each(put)` calls put(list, number) for all of them, in the same order each time.
  template <typename Each>
  Lists(std::size_t lists, Each each) : first_(lists + 1) {
    each([&](std::size_t list, std::size_t) { ++first_[list + 1]; });
    std::partial_sum(first_.begin(), first_.end(), first_.begin());
    numbers_.resize(first_.back());
    std::vector<std::size_t> next = first_;
    each([&](std::size_t list, std::size_t number) { numbers_[next[list]++] = number; });
  }

  [[nodiscard]] std::span<const std::size_t> of(std::size_t list) const {
    return std::span(numbers_).subspan(first_[list], first_[list + 1] - first_[list]);
  }

 private:
  std::vector<std::size_t> first_;
  std::vector<std::size_t> numbers_;
};

/// Precomputed queries of the profile's operands.
struct OperandsInUse::Index {
  explicit Index(const StepProfile& profile)
      : Index(profile.memory.operands, profile.candidates.size()) {
    for (const Operand& operand : profile.memory.operands)
      later.push_back(computed_later(profile, operand));
  }

  Index(const std::vector<Operand>& operands, std::size_t storages)
      : of_storage(storages,
                   [&](auto put) {
                     for (std::size_t each = 0; each < operands.size(); ++each)
                       put(operands[each].storage, each);
                   }),
        for_product(storages,
                    [&](auto put) {
                      for (std::size_t each = 0; each < operands.size(); ++each) {
                        for (const Operand::Product& product : operands[each].products)
                          put(product.storage, each);
                      }
                    }),
        within(operands.size(), [&](auto put) {
          for (std::size_t each = 0; each < operands.size(); ++each) {
            for (const Operand::Product& product : operands[each].products)
              if (product.within != Operand::kAlways) put(product.within, each);
          }
        }) {}

  Lists of_storage;
  Lists for_product;
  Lists within;  // by operand: the dependent operands
  std::vector<ComputedLater> later{};
};

OperandsInUse::OperandsInUse(const StepProfile& profile) : profile_(&profile) {
  if (profile.memory.operands.empty()) return;
  index_ = std::make_shared<const Index>(profile);
  for (const Candidate& candidate : profile.candidates)
    actions_.push_back(candidate.recompute ? Action::kRecompute : Action::kOffload);
  for (const bool in_use : operands_in_use(profile, actions_))
    in_use_.push_back(in_use ? 1 : 0);
}

std::span<const std::size_t> OperandsInUse::of_storage(std::size_t storage) const {
  return none() ? std::span<const std::size_t>() : index_->of_storage.of(storage);
}

std::span<const std::size_t> OperandsInUse::for_product(std::size_t product) const {
  return none() ? std::span<const std::size_t>() : index_->for_product.of(product);
}

ComputedLater OperandsInUse::later(std::size_t operand) const {
  return index_->later[operand];
}

bool OperandsInUse::has_product(std::size_t operand) const {
  const auto& products = profile_->memory.operands[operand].products;
  return std::any_of(products.begin(), products.end(), [&](const Operand::Product& product) {
    return computed(product.storage) &&
           (product.within == Operand::kAlways || in_use(product.within));
  });
}

std::vector<std::size_t> OperandsInUse::settle(std::size_t storage, Action action) {
  std::vector<std::size_t> changed;
  if (none()) return changed;
  const bool was_computed = computed(storage);
  actions_[storage] = action;
  if (was_computed == computed(storage)) return changed;
  const auto look_at = [&](std::span<const std::size_t> operands) {
    for (const std::size_t each : operands) {
      if (in_use(each) == has_product(each)) continue;
      in_use_[each] = in_use(each) ? 0 : 1;
      changed.push_back(each);
    }
  };
  look_at(index_->for_product.of(storage));
  // What was there for others to be computed from it depends on that. The list grows meanwhile.
  // NOLINTNEXTLINE(modernize-loop-convert)
  for (std::size_t each = 0; each < changed.size(); ++each)
    look_at(index_->within.of(changed[each]));
  return changed;
}

std::vector<std::size_t> OperandsInUse::first_use() const {
  return first_uses(*profile_, actions_, {in_use_.begin(), in_use_.end()});
}

}  // namespace spillway
