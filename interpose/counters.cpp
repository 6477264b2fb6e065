// SPDX-License-Identifier: Apache-2.0
#include "interpose/counters.h"

#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>

#include <new>

namespace spillway::interpose {

__attribute__((tls_model("initial-exec"))) constinit thread_local Local local;

namespace {

constinit std::atomic<ThreadCounters*> first{nullptr};
constinit std::atomic<bool> keyed{false};
pthread_key_t key;
void (*before_return)(ThreadCounters&) = nullptr;

/// ThreadCounters released by an ended thread.
ThreadCounters* abandoned() {
  for (ThreadCounters* each = first.load(std::memory_order_acquire); each != nullptr;
       each = each->next) {
    bool taken = false;
    if (each->taken.compare_exchange_strong(taken, true)) return each;
  }
  return nullptr;
}

/// From the system: the call of CUDA may come from the program's malloc.
ThreadCounters* fresh() {
  void* at = mmap(
      nullptr, sizeof(ThreadCounters), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (at == MAP_FAILED) return nullptr;
  auto* counters = new (at) ThreadCounters;
  counters->next = first.load(std::memory_order_relaxed);
  while (!first.compare_exchange_weak(counters->next, counters, std::memory_order_release)) {
  }
  return counters;
}

}  // namespace

ThreadCounters* my_counters() {
  if (local.counters != nullptr) return local.counters;
  ThreadCounters* counters = abandoned();
  if (counters == nullptr) counters = fresh();
  if (counters == nullptr) return nullptr;
  counters->thread.store(gettid());
  if (keyed.load()) pthread_setspecific(key, counters);
  local.counters = counters;
  return counters;
}

ThreadCounters* all_counters() {
  return first.load(std::memory_order_acquire);
}

bool give_counters_back(void (*at_end)(ThreadCounters&)) {
  before_return = at_end;
  const int failed = pthread_key_create(&key, [](void* mine) {
    auto* counters = static_cast<ThreadCounters*>(mine);
    before_return(*counters);
    local.counters = nullptr;  // a later destructor of this thread may call CUDA again
    counters->taken.store(false);
  });
  keyed.store(failed == 0);
  return failed == 0;
}

}  // namespace spillway::interpose
