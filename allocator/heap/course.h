// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "allocator/base/bytes.h"
#include "allocator/base/ids.h"
#include "allocator/driver/handles.h"

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

namespace spillway {

/// A request of a planned step, or the free of its block.
struct CourseEvent {
  driver::DevicePtr at;  // the block; null: the request has no place
  Bytes requested;       // zero: a free
  TagId tag = TagId::kUntagged;
  std::uint32_t request = 0;  // which one
};

/// A planned step as a sequence of events, and how far the running step has come in it. While each
/// request and each free is the next event, that place in the sequence is all that is known of the
/// step's blocks: what a step so far amounts to is written down later, or never.
/// Threads: confined; the region holds its lock.
class Course {
 public:
  /// Where a step is written down, each for readers of its own.
  enum class Ledger : std::uint8_t { kBooks, kBlocks };

  /// Takes up another sequence, of so many requests, and does not begin it.
  void plan(std::vector<CourseEvent> events, std::uint32_t requests) {
    stop();
    events.push_back(kNone);
    events.back().request = requests;
    events_ = std::move(events);
  }

  /// The next step begins: its first event is the next one, and nothing is written down.
  void begin() {
    next_ = events_.data();
    written_ = {};
  }

  /// Nothing is the next event any more.
  void stop() { next_ = &kNone; }

  [[nodiscard]] bool on() const { return next_ != &kNone; }

  /// Whether no event of the step has been seen. Requires: on().
  [[nodiscard]] bool at_begin() const { return next_ == events_.data(); }

  /// Whether all of them have. Requires: on().
  [[nodiscard]] bool at_end() const { return next_ == &events_.back(); }

  /// The place of a request; null where it is not the next event or has no place.
  driver::DevicePtr take(Bytes requested, TagId tag) {
    const CourseEvent& event = *next_;
    if (event.requested != requested || event.tag != tag || event.at == driver::DevicePtr{}) {
      return {};
    }
    ++next_;
    return event.at;
  }

  /// Whether the free of this block is the next event. Requires: not null.
  bool give(driver::DevicePtr at) {
    if (next_->at != at || !next_->requested.zero()) return false;
    ++next_;
    return true;
  }

  /// Whether a request without a place, of this size, is the next event.
  bool pass(Bytes requested) {
    if (next_->at != driver::DevicePtr{} || next_->requested != requested) return false;
    ++next_;
    return true;
  }

  /// The events that have been seen and not been written down in this ledger; they have been now.
  /// Requires: on().
  std::span<const CourseEvent> write_down(Ledger ledger) {
    const CourseEvent* const begin = events_.data();
    const auto seen = static_cast<std::size_t>(next_ - begin);
    std::size_t& written = written_.at(static_cast<std::size_t>(ledger));
    return {begin + std::exchange(written, seen), next_};
  }

  [[nodiscard]] bool written(Ledger ledger) const {
    return written_.at(static_cast<std::size_t>(ledger)) != 0;
  }

  /// The request that comes next. Requires: on().
  [[nodiscard]] std::uint32_t next_request() const {
    const CourseEvent* event = next_;
    while (event != &events_.back() && event->requested.zero())
      ++event;
    return event->request;
  }

 private:
  /// Matches no request and no free.
  static constexpr CourseEvent kNone{};

  std::vector<CourseEvent> events_{kNone};  // and the end
  const CourseEvent* next_ = &kNone;
  std::array<std::size_t, 2> written_{};
};

}  // namespace spillway
