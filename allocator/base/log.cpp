// SPDX-License-Identifier: Apache-2.0
#include "allocator/base/log.h"

#include "allocator/base/env.h"

#include <cstdio>

namespace spillway {

bool log_enabled() {
  static const bool enabled = [] {
    const auto flag = env::flag("SPILLWAY_LOG");
    return flag.ok() && flag.value();
  }();
  return enabled;
}

void log(std::string_view line) {
  if (!log_enabled()) return;
  std::fprintf(stderr, "spillway: %.*s\n", static_cast<int>(line.size()), line.data());
}

}  // namespace spillway
