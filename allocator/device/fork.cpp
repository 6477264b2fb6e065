// SPDX-License-Identifier: Apache-2.0
#include "allocator/device/fork.h"

#include <pthread.h>

#include <atomic>

namespace spillway {
namespace {

std::atomic<bool> forked{false};

}  // namespace

void watch_for_forks() {
  static const int watching =
      pthread_atfork(nullptr, nullptr, [] { forked.store(true, std::memory_order_relaxed); });
  static_cast<void>(
      watching);  // it fails only without memory, and then the fork most likely does too
}

bool in_forked_child() {
  return forked.load(std::memory_order_relaxed);
}

}  // namespace spillway
