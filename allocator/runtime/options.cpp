// SPDX-License-Identifier: Apache-2.0
#include "allocator/base/env.h"
#include "allocator/runtime/device_runtime.h"

namespace spillway {

Result<RuntimeOptions> RuntimeOptions::from_environment() {
  SPILLWAY_RETURN_IF_ERROR(env::check_names());
  SPILLWAY_RETURN_IF_ERROR(env::flag("SPILLWAY_LOG").status());
  SPILLWAY_ASSIGN_OR_RETURN(const auto pinned_limit, env::size("SPILLWAY_PINNED_LIMIT"));
  RuntimeOptions options;
  options.pinned_limit = pinned_limit.value_or(Bytes{});
  return options;
}

}  // namespace spillway
