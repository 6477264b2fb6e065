// SPDX-License-Identifier: Apache-2.0
#include "torch_glue/model_state/storage_names.h"

#include <utility>

namespace spillway {

void StorageNames::set(AccessOrder::Id id, std::string name) {
  const LightLock lock(mutex_);
  names_[id] = std::move(name);
}

std::string StorageNames::of(AccessOrder::Id id) {
  const AccessOrder::Id slot = (id - 1) % kSlots;  // identities begin at 1
  const LightLock lock(mutex_);
  const auto found = names_.find(id - slot);
  if (found == names_.end()) return {};
  constexpr AccessOrder::Id kGradient = 1;
  if (slot == 0) return found->second;
  if (slot == kSlots - 1) return "cast of " + found->second;
  return (slot == kGradient ? "gradient of " : "state of ") + found->second;
}

}  // namespace spillway
