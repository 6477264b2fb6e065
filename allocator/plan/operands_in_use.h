// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "allocator/plan/step_profile.h"

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

namespace spillway {

/// The operands (Operand) of a step that are needed for recomputation, while the actions are being
/// decided. Initially every recomputable storage is recomputed. The profile must outlive it. Copies
/// are cheap if a step has no operands.
class OperandsInUse {
 public:
  explicit OperandsInUse(const StepProfile& profile);

  [[nodiscard]] bool none() const { return index_ == nullptr; }

  /// The profile's operands with this storage, later events first.
  [[nodiscard]] std::span<const std::size_t> of_storage(std::size_t storage) const;
  /// The operands that this product is recomputed from; other products may share them.
  [[nodiscard]] std::span<const std::size_t> for_product(std::size_t product) const;

  [[nodiscard]] ComputedLater later(std::size_t operand) const;

  [[nodiscard]] bool in_use(std::size_t operand) const { return in_use_[operand] != 0; }

  [[nodiscard]] bool computed(std::size_t storage) const {
    return actions_[storage] == Action::kRecompute;
  }

  [[nodiscard]] bool kept(std::size_t storage) const { return actions_[storage] == Action::kKeep; }

  /// Sets the action of the storage. Returns the operands that became needed, or unneeded, by that.
  std::vector<std::size_t> settle(std::size_t storage, Action action);

  /// As first_uses.
  [[nodiscard]] std::vector<std::size_t> first_use() const;

 private:
  class Lists;
  struct Index;

  [[nodiscard]] bool has_product(std::size_t operand) const;

  const StepProfile* profile_;
  std::shared_ptr<const Index> index_;  // null if there are no operands
  std::vector<Action> actions_;         // by storage
  std::vector<char> in_use_;            // by operand
};

}  // namespace spillway
