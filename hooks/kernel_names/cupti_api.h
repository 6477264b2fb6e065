// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "allocator/base/result.h"

#include <cupti_callbacks.h>
#include <cupti_result.h>

#include <string>
#include <vector>

namespace spillway::hooks {

/// The CUPTI functions that Spillway uses, as one table: the only entry point to CUPTI. Tests fill
/// one with functions that report synthetic launches.
struct CuptiApi {
// NOLINTNEXTLINE(bugprone-macro-parentheses): a declaration cannot stand in parentheses
#define SPILLWAY_CUPTI(member, symbol) decltype(&(symbol)) member = nullptr;
#include "hooks/kernel_names/cupti_symbols.inc"
#undef SPILLWAY_CUPTI

  /// Looks up a function by its exported name; null if there is none.
  using Lookup = void* (*)(void* library, const char* symbol);

  /// Fills a table. Errors: kNoDriver with the name of the first missing function.
  static Result<CuptiApi> from(Lookup lookup, void* library);

  /// Opens libcupti.so.13 by the loader's search, or in one of `folders` (PyTorch's wheels install
  /// it in nvidia/cu13/lib). It is never closed. Nothing is subscribed.
  /// Threads: safe.
  /// Errors: kNoDriver with a remedy.
  static Result<CuptiApi> load(const std::vector<std::string>& folders);
  /// The paths that `load` tries, in order.
  static std::vector<std::string> files(const std::vector<std::string>& folders);
  /// Opens the first of these files that can be opened. Otherwise as `load`.
  static Result<CuptiApi> open(const std::vector<std::string>& files);

  /// "CUPTI_ERROR_…", or the number if CUPTI has no name for it.
  [[nodiscard]] std::string text(CUptiResult result) const;
};

}  // namespace spillway::hooks
