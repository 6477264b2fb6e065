// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "torch_glue/model_state/managed_storages.h"

#include <optional>
#include <string>
#include <vector>

namespace spillway {

/// The operator that needed the most memory beyond a device's budget: everything else that can
/// leave had left.
struct BudgetExcess {
  struct Argument {
    std::vector<std::int64_t> sizes;
    std::string type;        // such as "float32"
    Bytes bytes;             // of its storage
    std::string of;          // model_class_name(), or empty: not managed
    AccessOrder::Id id = 0;  // likewise: zero
    std::string name;        // StorageNames::of()
  };

  std::string op;   // "aten::mm"; empty outside of operators
  Bytes allocated;  // the allocation that had no room
  Bytes needed;     // the reserved bytes with it
  /// Each storage once, the largest first. Empty if the operator has no managed argument.
  std::vector<Argument> arguments;
  ManagedStorages::ByClass resident;  // model state on the device at that time
};

/// From now on they are noted.
void note_budget_excesses();

/// The largest one of the device so far.
std::optional<BudgetExcess> largest_budget_excess(DeviceId device);

}  // namespace spillway
