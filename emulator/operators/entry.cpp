// SPDX-License-Identifier: Apache-2.0
#include "emulator/operators/installation.h"
#include "emulator/operators/observer.h"
#include "emulator/operators/operators.h"
#include "emulator/operators/runtime.h"

#include <algorithm>
#include <exception>

namespace spillway::operators {
namespace {

const Coverage* coverage = nullptr;

/// Never destroyed: callers hold a pointer into it.
std::string& error_text() {
  static auto* text = new std::string;
  return *text;
}

int refuse(std::string why) {
  error_text() = std::move(why);
  return 1;
}

int try_install() {
  const EmulatedRuntime& runtime = emulated_runtime();
  if (!runtime.complete()) {
    return refuse(
        "the emulated CUDA runtime is not in this process, or is of another version: preload "
        "libspillway_emulator.so");
  }
  if (runtime.ready() == 0) return refuse(runtime.error());
  const bool again = coverage != nullptr;
  coverage = &install();
  if (!again && runtime.checks) observe_operators();
  error_text().clear();
  return 0;
}

}  // namespace
}  // namespace spillway::operators

using namespace spillway::operators;

#define SPILLWAY_EXPORT __attribute__((visibility("default")))

extern "C" SPILLWAY_EXPORT int spillway_operators_install() {
  try {
    return try_install();
  } catch (const std::exception& error) {
    return refuse(error.what());
  }
}

extern "C" SPILLWAY_EXPORT const char* spillway_operators_error() {
  return error_text().c_str();
}

extern "C" SPILLWAY_EXPORT size_t spillway_operators_count(const char* kind) {
  if (coverage == nullptr) return 0;
  return static_cast<size_t>(
      std::count_if(coverage->begin(), coverage->end(), [kind](const auto& entry) {
        return std::string_view(entry.second) == kind;
      }));
}

extern "C" SPILLWAY_EXPORT const char* spillway_operators_kind(const char* name) {
  if (coverage == nullptr) return nullptr;
  const auto found = coverage->find(std::string_view(name));
  return found == coverage->end() ? nullptr : found->second;
}
