// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

namespace spillway {

/// Off unless SPILLWAY_LOG=1, because the process belongs to the user. One line per event, to
/// stderr.
/// Threads: safe.
[[nodiscard]] bool log_enabled();
void log(std::string_view line);

}  // namespace spillway
