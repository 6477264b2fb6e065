// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "interpose/entries.h"

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace spillway::interpose {

/// One call in the format of a trace file (docs/preload_trace.md).
struct Event {
  std::uint64_t ticks;    ///< start of the call; its end if it creates something; 0: between
                          ///< the moments of those around it
  std::uint64_t address;  ///< of memory, or the handle of a function or graph
  std::uint64_t bytes;
  std::uint64_t stream;
  std::uint16_t entry;
  std::uint16_t kind;
  std::int32_t result;
};

static_assert(sizeof(Event) == 40);

/// The last events of one thread. One thread writes; readers claim events before they take them. No
/// lock, and no memory before the first event.
class Ring {
 public:
  static constexpr std::uint64_t kEvents = 1U << 14U;
  static constexpr std::uint64_t kLaunchesPerMoment = 8;

  /// The slot for the next event; null if the ring is full or has no memory.
  Event* next();

  /// Whether the next event needs a time even if it is a launch: the first one of each piece of
  /// drain(), and one in eight after it.
  [[nodiscard]] bool needs_moment() const {
    const std::uint64_t head = head_.load(std::memory_order_relaxed);
    const std::uint64_t waiting = head - tail_.load(std::memory_order_relaxed);
    return waiting % kLaunchesPerMoment == 0 || head % kEvents == 0;
  }

  /// Makes the written event readable.
  void publish() {
    head_.store(head_.load(std::memory_order_relaxed) + 1, std::memory_order_release);
  }

  /// Counts an event without a slot.
  void lose() { lost_.store(lost_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed); }

  [[nodiscard]] std::uint64_t lost() const { return lost_.load(std::memory_order_relaxed); }

  /// Passes all untaken events to `write`, in at most two pieces.
  /// Threads: safe; of two concurrent calls, one gets them and the other one returns false.
  template <typename Write>
  bool drain(Write write) {
    if (tail_.load() == head_.load()) return true;
    if (draining_.exchange(true, std::memory_order_acquire)) return false;
    // Read after the claim: a drain that ended meanwhile may have advanced it.
    std::uint64_t from = tail_.load(std::memory_order_relaxed);
    const std::uint64_t to = head_.load(std::memory_order_acquire);
    while (from < to) {
      const std::uint64_t at = from % kEvents;
      const std::uint64_t count = to - from < kEvents - at ? to - from : kEvents - at;
      write(events_.load(std::memory_order_relaxed) + at, static_cast<std::size_t>(count));
      from += count;
    }
    tail_.store(to, std::memory_order_release);
    draining_.store(false, std::memory_order_release);
    return true;
  }

 private:
  Event* memory();

  std::atomic<Event*> events_{nullptr};
  std::atomic<std::uint64_t> head_{0};
  std::atomic<std::uint64_t> tail_{0};
  std::atomic<std::uint64_t> lost_{0};
  std::atomic<bool> draining_{false};
};

inline Event* Ring::next() {
  Event* events = events_.load(std::memory_order_relaxed);
  const std::uint64_t head = head_.load(std::memory_order_relaxed);
  if (head - tail_.load(std::memory_order_acquire) == kEvents) return nullptr;
  if (events == nullptr) events = memory();
  if (events == nullptr) return nullptr;
  __builtin_prefetch(events + (head + 4) % kEvents, 1);  // a ring is larger than the L1 cache
  return events + head % kEvents;
}

}  // namespace spillway::interpose
