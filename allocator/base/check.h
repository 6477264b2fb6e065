// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace spillway {

/// Prints the place and aborts. For what can only be a bug in Spillway itself.
[[noreturn]] void check_failed(const char* condition, const char* file, int line);

}  // namespace spillway

/// Active in release builds too: continuing would corrupt another owner's training run.
#define SPILLWAY_CHECK(condition) \
  ((condition) ? static_cast<void>(0) : ::spillway::check_failed(#condition, __FILE__, __LINE__))
