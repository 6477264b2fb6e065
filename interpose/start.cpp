// SPDX-License-Identifier: Apache-2.0
// The library's own actions at the start, in a forked child, and at the end.
#include "allocator/base/env.h"
#include "allocator/base/log.h"
#include "interpose/counters.h"
#include "interpose/job.h"
#include "interpose/mode.h"
#include "interpose/own_path.h"
#include "interpose/ranges.h"
#include "interpose/substitution.h"
#include "interpose/trace.h"

#include <pthread.h>

#include <cstdio>

namespace spillway::interpose {
namespace {

/// An invalid setting of ours must not change the program's behavior.
template <typename T>
T value_or(const Result<T>& setting, T otherwise) {
  if (setting.ok()) return setting.value();
  log("preload: " + setting.status().message());
  return otherwise;
}

/// A program that requests a trace must learn that there is none.
void log_failure(const Status& of_trace) {
  if (of_trace.ok()) return;
  std::fprintf(stderr, "spillway: SPILLWAY_PRELOAD_TRACE: %s\n", of_trace.detail().c_str());
}

/// In a forked child: it must not use CUDA, and its calls are forwarded.
void be_inert() {
  stop(Stop::kForked);
  forget_substitution();
  trace_forget();
}

__attribute__((constructor)) void start() {
  if (value_or(env::flag("SPILLWAY_DISABLE"), false)) return stop(Stop::kDisabled);
  if (pthread_atfork(nullptr, nullptr, be_inert) != 0) return stop(Stop::kDisabled);
  if (!give_counters_back(trace_thread_ends))
    log("preload: no key for thread-specific data is available (pthread_key_create)");
  set_mode(Mode::kCount);
  if (value_or(env::text("SPILLWAY_PRELOAD"), {}) == "substitute") allow_substitution();
  if (const auto path = value_or(env::text("SPILLWAY_PRELOAD_TRACE"), {}))
    log_failure(trace_begin(*path));
  if (asked_for() != nullptr) offer_package();
  if (given("SPILLWAY_TAG_RATIO")) offer_ranges();
}

// Runs after all destructors of the program, because it was registered first. Waits for a thread
// only while that writes its events (trace_end), and releases nothing: the driver may be shut down.
__attribute__((destructor)) void finish() {
  const auto why = stopped();
  stop(Stop::kExit);
  if (why == Stop::kForked || why == Stop::kDisabled) return;
  if (const Status ended = trace_end(); ended.code() != Code::kNotReady) log_failure(ended);
}

}  // namespace
}  // namespace spillway::interpose
