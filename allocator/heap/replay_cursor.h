// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "allocator/base/bytes.h"
#include "allocator/base/ids.h"
#include "allocator/driver/handles.h"

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <thread>
#include <utility>
#include <vector>

namespace spillway {

/// An event of a step in its replay plan: a request, or the free of its block.
struct ReplayEvent {
  driver::DevicePtr at;  // the block; null: the replay plan has no address for the request
  Bytes requested;       // zero: a free
  TagId tag = TagId::kUntagged;
  std::uint32_t request = 0;  // index of the request
};

/// The events of a step in its replay plan, with a cursor for the running step. While each request
/// and each free is the next event, the cursor is the only state that changes. The step's blocks
/// and accounting are updated from it later, or never.
/// Threads: take and give may be called from any thread; the others require the heap region's lock.
class ReplayCursor {
 public:
  /// The consumers that catch up with the cursor, each independently.
  enum class Ledger : std::uint8_t { kAccounting, kBlocks };

  /// The replay plan's address of a request. Null if the request is not the next event, has no such
  /// address, or another thread is using the cursor.
  driver::DevicePtr take(Bytes requested, TagId tag) {
    if (busy_.exchange(true, std::memory_order_acquire)) return {};
    const ReplayEvent& event = *next_;
    const bool is_next = event.requested == requested && event.tag == tag;
    const driver::DevicePtr at = is_next ? event.at : driver::DevicePtr{};
    if (at != driver::DevicePtr{}) ++next_;
    busy_.store(false, std::memory_order_release);
    return at;
  }

  /// Whether the free of this block is the next event. False also if another thread is using the
  /// cursor.
  bool give(driver::DevicePtr at) {
    if (busy_.exchange(true, std::memory_order_acquire)) return false;
    const bool is_next = next_->at == at && next_->requested.zero();
    if (is_next) ++next_;
    busy_.store(false, std::memory_order_release);
    return is_next;
  }

  /// Replaces the sequence by one of `requests` requests, without starting it.
  void plan(std::vector<ReplayEvent> events, std::uint32_t requests) {
    stop();
    events.push_back(kNone);
    events.back().request = requests;
    events_ = std::move(events);
    stopped_at_ = events_.data();
    written_ = {};
  }

  /// Starts the next step at its first event; both ledgers start there too.
  void begin() {
    written_ = {};
    on_ = true;
    move_to(events_.data());
  }

  /// Stops matching: no request and no free is the next event.
  void stop() {
    if (!on_) return;
    on_ = false;
    stopped_at_ = move_to(&kNone);
  }

  [[nodiscard]] bool on() const { return on_; }

  /// Whether no event of the step has occurred.
  [[nodiscard]] bool at_begin() { return seen_to() == events_.data(); }

  /// Whether all events of the step have occurred.
  [[nodiscard]] bool at_end() { return seen_to() == &events_.back(); }

  /// Advances past a request of this size without an address in the replay plan. Returns whether
  /// that was the next event.
  bool pass(Bytes requested) {
    enter();
    const bool is_next = next_->at == driver::DevicePtr{} && next_->requested == requested;
    if (is_next) ++next_;
    busy_.store(false, std::memory_order_release);
    return is_next;
  }

  /// The events since the last call for this ledger. They count as written down now.
  std::span<const ReplayEvent> write_down(Ledger ledger) {
    const ReplayEvent* const end = seen_to();
    std::size_t& written = written_.at(static_cast<std::size_t>(ledger));
    const ReplayEvent* const begin = events_.data() + written;
    written = static_cast<std::size_t>(end - events_.data());
    return {begin, end};
  }

  [[nodiscard]] bool written(Ledger ledger) const {
    return written_.at(static_cast<std::size_t>(ledger)) != 0;
  }

  /// The index of the next request.
  [[nodiscard]] std::uint32_t next_request() {
    const ReplayEvent* event = seen_to();
    while (event != &events_.back() && event->requested.zero())
      ++event;
    return event->request;
  }

 private:
  /// Matches no request and no free.
  static constexpr ReplayEvent kNone{};

  void enter() {
    while (busy_.exchange(true, std::memory_order_acquire))
      std::this_thread::yield();
  }

  const ReplayEvent* move_to(const ReplayEvent* next) {
    enter();
    const ReplayEvent* const before = std::exchange(next_, next);
    busy_.store(false, std::memory_order_release);
    return before;
  }

  const ReplayEvent* seen_to() {
    if (!on_) return stopped_at_;
    enter();
    const ReplayEvent* const next = next_;
    busy_.store(false, std::memory_order_release);
    return next;
  }

  std::atomic<bool> busy_{false};     // held for a few loads; its holder owns `next_`
  const ReplayEvent* next_ = &kNone;  // in events_ while replay is on
  bool on_ = false;
  std::vector<ReplayEvent> events_{kNone};  // and the end marker
  const ReplayEvent* stopped_at_ = events_.data();
  std::array<std::size_t, 2> written_{};
};

}  // namespace spillway
