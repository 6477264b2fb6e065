// SPDX-License-Identifier: Apache-2.0
#include "allocator/base/env.h"
#include "allocator/device/device_runtime.h"
#include "allocator/transfer/host_room.h"

#include <string>

namespace spillway {
namespace {

/// A budget of host memory; zero if none is set.
/// Errors: kInvalidArgument for 0 and for more than `most`.
Result<Bytes> budget(const char* name, Bytes most) {
  SPILLWAY_ASSIGN_OR_RETURN(const auto given, env::size(name));
  if (!given) return Bytes{};
  if (!given->zero() && *given <= most) return *given;
  return SPILLWAY_ERROR(
      Code::kInvalidArgument,
      std::string(name) + '=' + std::to_string(given->count()) +
          ": expected a size above 0 and at most " + std::to_string(most.count()) + " bytes (" +
          readable(most) +
          "), the memory of this machine that may be pinned. To pin nothing, do not offload. "
          "To be limited by the machine alone, unset it.");
}

}  // namespace

Result<RuntimeOptions> RuntimeOptions::from_environment() {
  SPILLWAY_RETURN_IF_ERROR(env::check_names());
  SPILLWAY_RETURN_IF_ERROR(env::flag("SPILLWAY_LOG").status());
  const HostRoom room = host_room();
  RuntimeOptions options;
  SPILLWAY_ASSIGN_OR_RETURN(options.pinned_limit, budget("SPILLWAY_PINNED_LIMIT", room.most));
  SPILLWAY_ASSIGN_OR_RETURN(options.node_pinned_limit,
                            budget("SPILLWAY_NODE_PINNED_LIMIT", room.machine));
  SPILLWAY_ASSIGN_OR_RETURN(const auto replay, env::flag("SPILLWAY_PLAN_REPLAY"));
  options.plan_replay = replay.value_or(false);
  // The device's memory is known at its creation.
  SPILLWAY_ASSIGN_OR_RETURN(const auto limit, env::size("SPILLWAY_MEMORY_LIMIT"));
  if (limit && limit->zero()) {
    return SPILLWAY_ERROR(Code::kInvalidArgument,
                          "SPILLWAY_MEMORY_LIMIT=0: expected a size above 0 and at most the "
                          "device's memory. Unset it for no other limit.");
  }
  options.memory_limit = limit.value_or(Bytes{});
  return options;
}

}  // namespace spillway
