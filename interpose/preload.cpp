// SPDX-License-Identifier: Apache-2.0
#include "interpose/preload.h"

#include "interpose/counters.h"
#include "interpose/job.h"
#include "interpose/mode.h"
#include "interpose/proc_address.h"
#include "interpose/substitution.h"
#include "interpose/trace.h"

#include <string>
#include <string_view>

#define SPILLWAY_EXPORT __attribute__((visibility("default")))

extern "C" {

SPILLWAY_EXPORT std::uint64_t spillway_preload_count(const char* what) {
  using namespace spillway::interpose;
  constexpr std::string_view kBytes = "_bytes";
  if (what == nullptr) return 0;
  std::string name(what);
  if (name == "newer_look_ups") return newer_look_ups();
  const bool bytes = name.ends_with(kBytes);
  if (bytes) name.resize(name.size() - kBytes.size());
  const auto entry = entry_named(name.c_str());
  if (!entry) return 0;
  std::uint64_t sum = 0;
  for (ThreadCounters* each = all_counters(); each != nullptr; each = each->next) {
    sum += bytes ? each->of(*entry).bytes.load() : each->of(*entry).calls.load();
  }
  return sum;
}

SPILLWAY_EXPORT const char* spillway_preload_stopped() {
  using spillway::interpose::Stop;
  const auto why = spillway::interpose::stopped();
  if (!why) return "";
  switch (*why) {
    case Stop::kDisabled:
      return "disabled";
    case Stop::kForked:
      return "forked";
    case Stop::kExit:
      return "exit";
    case Stop::kStickyError:
      return "error";
  }
  return "";
}

SPILLWAY_EXPORT const char* spillway_preload_refusal() {
  return spillway::interpose::substitution_refusal();
}

SPILLWAY_EXPORT void spillway_preload_job_started() {
  spillway::interpose::package_started();
}

SPILLWAY_EXPORT int spillway_preload_trace_begin(const char* path) {
  return spillway::interpose::trace_begin(path == nullptr ? "" : path).ok() ? 0 : 1;
}

SPILLWAY_EXPORT int spillway_preload_trace_end() {
  return spillway::interpose::trace_end().ok() ? 0 : 1;
}
}
