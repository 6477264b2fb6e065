// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "emulator/device/range.h"
#include "emulator/device/vector_clock.h"

#include <algorithm>
#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <vector>

namespace spillway::emulator {

/// Finds two operations that touch the same bytes, one of them writing, with nothing that orders
/// them: whatever the schedule, and although the data may have come out right.
/// Threads: under the machine's lock.
class OrderChecker {
 public:
  /// How reports call the actor from now on.
  void name_actor(Actor actor, std::string name);

  /// `actor`, knowing `clock`, reads or writes `range`. `operation` must live for ever.
  void access(
      Actor actor, const VectorClock& clock, Range range, bool write, const char* operation);

  /// The bytes have gone back to the driver; whatever comes there next is something else.
  void forget(Range range);

  /// The text of report `index`, null past the last kept one. Valid until clear().
  [[nodiscard]] const char* report(std::size_t index) const;

  /// Adds what another checker has reported, which forgets it.
  void take_reports(OrderChecker& from);

  void clear() { reports_.clear(); }

 private:
  struct Access {
    Actor actor = 0;
    std::uint64_t epoch = 0;  // 0: nobody
    const char* operation = "";
  };

  struct Segment {
    Range range;
    Access write;
    std::vector<Access> reads;  // since the write, the latest of each actor
  };

  using Segments = std::map<std::uintptr_t, Segment>;

  void split(std::uintptr_t at);
  void read(Segments::iterator first, Range range, const Access& access);
  void tell(const char* kind, const Access& now, const Access& before, Range range);

  std::vector<std::string> actors_;
  Segments segments_;
  std::deque<std::string> reports_;
  int printed_ = 0;
};

}  // namespace spillway::emulator
