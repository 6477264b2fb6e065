// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "interpose/entries.h"
#include "interpose/ring.h"

#include <array>
#include <atomic>
#include <cstdint>

namespace spillway::interpose {

/// Number of calls and their requested bytes. One thread writes, any thread reads.
struct Count {
  std::atomic<std::uint64_t> calls{0};
  std::atomic<std::uint64_t> bytes{0};

  void calls_only() {
    calls.store(calls.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  }

  void add(std::uint64_t more) {
    calls_only();
    bytes.store(bytes.load(std::memory_order_relaxed) + more, std::memory_order_relaxed);
  }
};

/// Counters of one thread. Never freed, so that readers need no lock. A later thread reuses the
/// counters of an ended thread.
struct ThreadCounters {
  std::array<Count, kEntries> counts;
  Ring ring;
  std::atomic<bool> taken{true};
  std::atomic<std::int32_t> thread{0};  ///< kernel id of the owning thread
  ThreadCounters* next = nullptr;       ///< set once, before other threads can see the counters

  Count& of(Entry entry) {
    return counts[static_cast<std::size_t>(entry)];  // NOLINT(*-constant-array-index)
  }
};

/// This thread's state within a wrapped call.
struct Local {
  int depth = 0;                       ///< > 0: within a wrapped call; nested calls are CUDA's own
  ThreadCounters* counters = nullptr;  ///< null before the thread's first call
};

// Initial-exec: the library is loaded at the start of the process, and dynamic TLS would allocate
// within the call. exports.cpp reads it in assembly.
extern __attribute__((tls_model("initial-exec"))) constinit thread_local Local local __asm__(
    "spillway_local");

/// This thread's counters, created on first use; null if the host has no memory for them.
ThreadCounters* my_counters();

/// The first of all counters; `next` leads to the others. Threads: safe.
ThreadCounters* all_counters();

/// Releases a thread's counters when it ends, after `at_end`. Call it once, before threads are
/// tracked.
/// Errors: false if no TLS key is left; counters are then never released.
bool give_counters_back(void (*at_end)(ThreadCounters&));

}  // namespace spillway::interpose
