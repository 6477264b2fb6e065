// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "interpose/entries.h"
#include "interpose/ring.h"

#include <array>
#include <atomic>
#include <cstdint>

namespace spillway::interpose {

/// Calls and the bytes that they asked for. One thread writes, any thread reads.
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

/// What one thread has done. Kept for good, so that the code that sums up need not wait; a thread
/// that has ended leaves its counters to a later one.
struct ThreadCounters {
  std::array<Count, kEntries> counts;
  Ring ring;
  std::atomic<bool> taken{true};
  std::atomic<std::int32_t> thread{0};  ///< whose they are, in the kernel's numbers
  ThreadCounters* next = nullptr;       ///< set once, before anybody else sees the counters

  Count& of(Entry entry) {
    return counts[static_cast<std::size_t>(entry)];  // NOLINT(*-constant-array-index)
  }
};

/// This thread's part of a wrapped call.
struct Local {
  int depth = 0;  ///< > 0: inside a wrapped call; what CUDA calls from there is its own
  ThreadCounters* counters = nullptr;  ///< null before the thread's first call
};

// Initial-exec: the library is there from the start of the process, and dynamic TLS would allocate
// inside the call. exports.cpp reads it in assembly.
extern __attribute__((tls_model("initial-exec"))) constinit thread_local Local local __asm__(
    "spillway_local");

/// This thread's counters, made on first use; null where the host has no memory for them.
ThreadCounters* my_counters();

/// The first of all counters; `next` leads to the others. Threads: safe.
ThreadCounters* all_counters();

/// Has a thread's counters released when it ends, after `at_end`. Call once, before threads are
/// watched. Errors: false where there is no key left: counters are then made and never released.
bool give_counters_back(void (*at_end)(ThreadCounters&));

}  // namespace spillway::interpose
