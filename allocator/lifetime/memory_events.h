// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "allocator/base/bytes.h"
#include "allocator/base/ids.h"

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

namespace spillway {

struct TagStepStats;

/// A block that was allocated.
struct BornBlock {
  DeviceId device{};
  std::uint64_t address = 0;
  Bytes requested;
  Bytes rounded;  // the block's size
  TagId tag = TagId::kUntagged;
  std::uint64_t stream = 0;  // handles, as passed to the allocator; zero if unknown
  std::uint64_t pool = 0;
};

/// Receives the events of a process's memory: a trace, a run log. Called by the thread that causes
/// the event, under its locks: an observer takes only its own. Events may arrive shortly after
/// unsubscribe(), so an observer is never destroyed.
class MemoryObserver {
 public:
  MemoryObserver(const MemoryObserver&) = delete;
  MemoryObserver& operator=(const MemoryObserver&) = delete;

  virtual void born(const BornBlock& block) = 0;
  /// Called before the memory can be reused.
  virtual void died(DeviceId device, std::uint64_t address) = 0;
  virtual void retagged(DeviceId device, std::uint64_t address, TagId tag) = 0;

  /// Autograd has saved or unpacked a storage in the block.
  virtual void used(DeviceId, std::uint64_t /*address*/) {}

  virtual void tag_step_ended(TagId, const TagStepStats&) {}

  virtual void step_ended() {}

 protected:
  MemoryObserver() = default;
  ~MemoryObserver() = default;
};

/// All events of memory are reported through this. While nothing is subscribed, on() is one
/// relaxed load; the other functions need not be called then.
/// Threads: safe.
class MemoryEvents {
 public:
  static constexpr std::size_t kMaxObservers = 4;

  [[nodiscard]] static bool on() { return observers_on_.load(std::memory_order_relaxed) != 0; }

  /// Requires: fewer than kMaxObservers are subscribed, and not this one.
  static void subscribe(MemoryObserver& observer);
  static void unsubscribe(MemoryObserver& observer);

  static void born(const BornBlock& block);
  static void died(DeviceId device, std::uint64_t address);
  static void retagged(DeviceId device, std::uint64_t address, TagId tag);
  static void used(DeviceId device, std::uint64_t address);
  static void tag_step_ended(TagId tag, const TagStepStats& step);
  static void step_ended();

 private:
  template <typename Report>
  static void each(Report report);

  // not inline: one instance for all of Spillway's libraries
  static std::atomic<int> observers_on_;
  static std::array<std::atomic<MemoryObserver*>, kMaxObservers> observers_;
};

}  // namespace spillway
