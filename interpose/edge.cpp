// SPDX-License-Identifier: Apache-2.0
#include "interpose/edge.h"

#include "allocator/base/env.h"
#include "allocator/base/log.h"

#include <pthread.h>

#include <atomic>

namespace spillway::interpose {
namespace {

// Initial-exec: the library is there from the start of the process, and dynamic TLS would allocate
// inside the call.
__attribute__((tls_model("initial-exec"))) thread_local int depth = 0;

std::atomic<bool> observing{false};

__attribute__((constructor)) void start() {
  const auto disabled = env::flag("SPILLWAY_DISABLE");
  if (!disabled.ok()) {
    log("preload: observes nothing: " + disabled.status().message());
    return;
  }
  if (disabled.value().value_or(false)) return;
  // A forked child must not use CUDA; what it calls all the same passes through untouched.
  if (pthread_atfork(nullptr, nullptr, [] { observing.store(false); }) != 0) return;
  observing.store(true);
}

}  // namespace

Reentry::Reentry() : observed_(depth++ == 0 && observing.load(std::memory_order_relaxed)) {}

Reentry::~Reentry() {
  --depth;
}

}  // namespace spillway::interpose
