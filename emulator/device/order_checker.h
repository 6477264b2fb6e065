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

/// The operation that accesses bytes, and its location in the program. All texts live as long as
/// the process; a tag or a place may be null.
struct AccessSite {
  const char* operation;
  const char* tag = nullptr;    // purpose of the memory
  const char* place = nullptr;  // lines of the program
};

/// Detects data races: two operations that access the same bytes, one of them writing, without an
/// order between them. It does so for any schedule, even if the data are correct. The same two
/// operations at the same two places are one report with a count.
/// Threads: under the machine's lock.
class OrderChecker {
 public:
  /// `prints`: each new report is printed to stderr, up to twenty. `file`, if not empty, gets a
  /// byte per report at once, so that none is lost however the process ends.
  explicit OrderChecker(bool prints = true, std::string file = {})
      : prints_(prints), file_(std::move(file)) {}

  /// Sets the name of an actor in reports.
  void name_actor(Actor actor, std::string name);

  /// Records a read or write by `actor` with the knowledge `clock`.
  void access(Actor actor,
              const VectorClock& clock,
              const Strided& bytes,
              bool write,
              const AccessSite& deed);

  /// The bytes were released to the driver; later contents are unrelated.
  void forget(Range range);

  /// The text of report `index`; null past the last kept one. Valid until the next call.
  const char* report(std::size_t index);

  /// Moves the reports of another checker to this one.
  void take_reports(OrderChecker& from);

  /// Number of different reports, including cleared ones.
  [[nodiscard]] std::size_t report_count() const { return count_; }

  void clear();

  /// Prints how often reports were repeated to stderr, and "spillway-check: N reports" unless a
  /// file counts them for several processes.
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

  /// The accesses to a range since it was last written completely. `reads` and `writes` contain the
  /// latest of each actor and shape.
  struct Segment {
    Range range;
    std::vector<Access> writes;
    std::vector<Access> reads;
  };

  struct Report {
    std::string key;  // equal for the same operations at the same places
    std::string text;
    std::size_t count = 1;
    std::string shown;  // with the count
  };

  using Segments = std::map<std::uintptr_t, Segment>;

  void split(std::uintptr_t at);
  void fill_gaps(Range range);
  static void keep(std::vector<Access>& kept, const Access& now, const VectorClock& clock);
  void add(Report&& report);
  void report_race(const char* kind, bool write, const Access& now, const Access& before);

  const bool prints_;
  const std::string file_;
  std::vector<std::string> actors_;
  Segments segments_;
  std::deque<Report> reports_;
  std::unordered_map<std::string, std::size_t> known_;  // report's key to its index
  std::size_t count_ = 0;
};

}  // namespace spillway::emulator
