// SPDX-License-Identifier: Apache-2.0
#include "allocator/base/env.h"
#include "allocator/base/settings.h"
#include "allocator/device/device_runtime.h"
#include "allocator/transfer/host_room.h"

#include <string>

namespace spillway {
namespace {

/// A budget of host memory; zero if none is set.
/// Errors: kInvalidArgument for an invalid value, and for more than `most`.
Result<Bytes> budget(const char* name, Bytes most) {
  SPILLWAY_ASSIGN_OR_RETURN(const auto given, env::size(name));
  if (given.value_or(Bytes{}) <= most) return given.value_or(Bytes{});
  return SPILLWAY_ERROR(
      Code::kInvalidArgument,
      std::string(name) + '=' + std::to_string(given->count()) + ": expected at most " +
          std::to_string(most.count()) + " bytes (" + readable(most) +
          "), the memory of this machine that may be pinned. Unset it to be limited by the machine "
          "alone.");
}

}  // namespace

Result<RuntimeOptions> RuntimeOptions::from_environment() {
  SPILLWAY_RETURN_IF_ERROR(settings::check_names());
  SPILLWAY_RETURN_IF_ERROR(env::flag("SPILLWAY_LOG").status());
  const HostRoom room = host_room();
  RuntimeOptions options;
  SPILLWAY_ASSIGN_OR_RETURN(options.pinned_limit, budget("SPILLWAY_PINNED_LIMIT", room.most));
  SPILLWAY_ASSIGN_OR_RETURN(options.node_pinned_limit,
                            budget("SPILLWAY_NODE_PINNED_LIMIT", room.machine));
  SPILLWAY_ASSIGN_OR_RETURN(options.plan_replay, env::flag("SPILLWAY_PLAN_REPLAY"));
  // The device's memory is known at its creation.
  SPILLWAY_ASSIGN_OR_RETURN(const auto limit, env::size("SPILLWAY_MEMORY_LIMIT"));
  options.memory_limit = limit.value_or(Bytes{});
  return options;
}

}  // namespace spillway
