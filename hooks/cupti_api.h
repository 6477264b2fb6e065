// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "allocator/base/result.h"

#include <cupti_callbacks.h>
#include <cupti_result.h>

#include <string>
#include <vector>

namespace spillway::hooks {

/// What Spillway asks of CUPTI, as one table: the only door to it. Tests fill one with functions
/// that report launches of their own.
struct CuptiApi {
// NOLINTNEXTLINE(bugprone-macro-parentheses): a declaration cannot stand in parentheses
#define SPILLWAY_CUPTI(member, symbol) decltype(&(symbol)) member = nullptr;
#include "hooks/cupti_symbols.inc"
#undef SPILLWAY_CUPTI

  /// A function by its exported name; null where there is none.
  using Lookup = void* (*)(void* library, const char* symbol);

  /// Fills a table. Errors: kNoDriver naming the first function that is missing.
  static Result<CuptiApi> from(Lookup lookup, void* library);

  /// Opens libcupti.so.13, where the loader finds it or else in one of `folders` (PyTorch's wheels
  /// bring it in nvidia/cu13/lib); it is never closed. Nothing is subscribed. Threads: safe.
  /// Errors: kNoDriver that says what to do.
  static Result<CuptiApi> load(const std::vector<std::string>& folders);
  /// What `load` tries, in order.
  static std::vector<std::string> files(const std::vector<std::string>& folders);
  /// The first of these files that can be opened. Otherwise as `load`.
  static Result<CuptiApi> open(const std::vector<std::string>& files);

  /// "CUPTI_ERROR_…", or its number where CUPTI has no name for it.
  [[nodiscard]] std::string text(CUptiResult result) const;
};

}  // namespace spillway::hooks
