// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "emulator/device/range.h"
#include "emulator/device/strided.h"
#include "emulator/device/vector_clock.h"

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

namespace spillway::emulator {

/// What touches bytes, and where in the program. All texts live indefinitely; a tag or a place may
/// be null.
struct AccessSite {
  const char* operation;
  const char* tag = nullptr;    // what the memory is for
  const char* place = nullptr;  // lines of the program
};

/// Finds two operations that touch the same bytes, one of them writing, with nothing that orders
/// them: whatever the schedule, and although the data may have come out right. The same two
/// operations at the same two places are one report, with a count.
/// Threads: under the machine's lock.
class OrderChecker {
 public:
  /// `prints`: each new report goes to stderr, up to twenty. `file`, where not empty, gets a byte
  /// for each at once, so that nothing is lost however the process ends.
  explicit OrderChecker(bool prints = true, std::string file = {})
      : prints_(prints), file_(std::move(file)) {}

  /// How reports call the actor from now on.
  void name_actor(Actor actor, std::string name);

  /// `actor`, knowing `clock`, reads or writes.
  void access(Actor actor,
              const VectorClock& clock,
              const Strided& bytes,
              bool write,
              const AccessSite& deed);

  /// The bytes have gone back to the driver; whatever comes there next is something else.
  void forget(Range range);

  /// The text of report `index`, null past the last kept one. Valid until the next call.
  const char* report(std::size_t index);

  /// Adds what another checker has reported, which forgets it.
  void take_reports(OrderChecker& from);

  /// How many different reports there were, cleared ones included.
  [[nodiscard]] std::size_t report_count() const { return told_; }

  void clear();

  /// Writes to stderr how often reports came again; and "spillway-check: N reports", unless a file
  /// counts them for several processes.
  void print_end() const;

 private:
  struct Access {
    Actor actor = 0;
    std::uint64_t epoch = 0;
    Range range{};
    std::size_t bytes = 0;
    AccessSite deed{};
    std::shared_ptr<const Strided> rows;  // null: all bytes of the segment
  };

  /// What happened to a range since it was last written as a whole. `reads` and `writes` hold the
  /// latest of each actor and shape.
  struct Segment {
    Range range;
    std::vector<Access> writes;
    std::vector<Access> reads;
  };

  struct Report {
    std::string key;  // the same for the same operations at the same places
    std::string text;
    std::size_t count = 1;
    std::string shown;  // with the count
  };

  using Segments = std::map<std::uintptr_t, Segment>;

  void split(std::uintptr_t at);
  void fill_gaps(Range range);
  static void keep(std::vector<Access>& kept, const Access& now, const VectorClock& clock);
  void add(Report&& report);
  void tell(const char* kind, bool write, const Access& now, const Access& before);

  const bool prints_;
  const std::string file_;
  std::vector<std::string> actors_;
  Segments segments_;
  std::deque<Report> reports_;
  std::unordered_map<std::string, std::size_t> known_;  // report's key to its index
  std::size_t told_ = 0;
};

}  // namespace spillway::emulator
