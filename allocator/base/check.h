// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace spillway {

/// Prints the source location and aborts. For errors that can only be bugs in Spillway itself.
[[noreturn]] void check_failed(const char* condition, const char* file, int line);

}  // namespace spillway

/// Active in release builds too: continuing would corrupt a training run.
#define SPILLWAY_CHECK(condition) \
  ((condition) ? static_cast<void>(0) : ::spillway::check_failed(#condition, __FILE__, __LINE__))
