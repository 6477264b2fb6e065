// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "allocator/plan/step_profile.h"

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

namespace spillway {

/// Which of a step's operands (Operand) something is recomputed from, while it is being decided
/// what becomes of its storages. To begin with all that can be is recomputed. The profile must
/// outlive it; copies are cheap where a step has no operands.
class OperandsInUse {
 public:
  explicit OperandsInUse(const StepProfile& profile);

  [[nodiscard]] bool none() const { return index_ == nullptr; }

  /// Of the profile's operands those that are this storage, a later place first.
  [[nodiscard]] std::span<const std::size_t> of_storage(std::size_t storage) const;
  /// Those that are there for it, and maybe for others.
  [[nodiscard]] std::span<const std::size_t> for_product(std::size_t product) const;

  [[nodiscard]] ComputedLater later(std::size_t operand) const;

  [[nodiscard]] bool in_use(std::size_t operand) const { return in_use_[operand] != 0; }

  [[nodiscard]] bool computed(std::size_t storage) const {
    return actions_[storage] == Action::kRecompute;
  }

  [[nodiscard]] bool kept(std::size_t storage) const { return actions_[storage] == Action::kKeep; }

  /// What becomes of the storage from now on; gives the operands that something is recomputed
  /// from only since then, or nothing any more.
  std::vector<std::size_t> settle(std::size_t storage, Action action);

  /// As wanted_places.
  [[nodiscard]] std::vector<std::size_t> wanted() const;

 private:
  struct Index;

  [[nodiscard]] bool has_product(std::size_t operand) const;

  const StepProfile* profile_;
  std::shared_ptr<const Index> index_;  // null where there are no operands
  std::vector<Action> actions_;         // by storage
  std::vector<char> in_use_;            // by operand
};

}  // namespace spillway
