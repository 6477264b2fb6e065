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
/// the process; a tag or a location may be null.
struct AccessSite {
  const char* operation;
  const char* tag = nullptr;       // purpose of the memory
  const char* location = nullptr;  // lines of the program
};

/// Detects data races. A race is two operations of different actors (streams or host threads) that
/// access a common byte, at least one of them writing. Neither is ordered before the other (vector
/// clocks). A race is reported even if this run happened to execute the two in a harmless order.
/// Two operations with the same names, sizes, tags and locations are one race, with a count. One
/// access causes at most one race.
///
/// For each range of bytes at most 32 reads and 32 writes are kept; a race with a dropped one is
/// missed.
/// Threads: under the machine's lock.
class OrderChecker {
 public:
  /// `prints`: each new race is printed to stderr, up to twenty. `file`: if not empty, one byte
  /// is appended to it as soon as a race is found. Its size is the number of races, however the
  /// process ends.
  explicit OrderChecker(bool prints = true, std::string file = {})
      : prints_(prints), file_(std::move(file)) {}

  /// Sets the name of an actor in the texts of races.
  void name_actor(Actor actor, std::string name);

  /// Checks a read or write of `bytes` by `actor` against earlier accesses, and records it.
  /// `clock`: the points of all actors that it is ordered after. `deed`: its description in
  /// texts of races.
  void access(Actor actor,
              const VectorClock& clock,
              const Strided& bytes,
              bool write,
              const AccessSite& deed);

  /// The bytes were released to the driver; later contents are unrelated.
  void forget(Range range);

  /// The bytes are known by addresses from `to` on now.
  void move(Range range, std::uintptr_t to);

  /// The text of race `index`; null past the last one. The first 1024 races are kept. Valid
  /// until the next call for the same race.
  const char* race(std::size_t index);

  /// Moves the races of another checker to this one.
  void take_races(OrderChecker& from);

  /// Number of distinct races since creation. clear() does not reset it, but a race that is
  /// found again after clear() counts again.
  [[nodiscard]] std::size_t race_count() const { return count_; }

  /// Drops the kept races; recorded accesses stay.
  void clear();

  /// Prints to stderr how often each of the first twenty races was found, if more than once. Then
  /// prints "spillway-check: N races", unless a file counts them for several processes.
  void print_end() const;

 private:
  struct Access {
    Actor actor = 0;
    std::uint64_t epoch = 0;
    Range range{};
    std::size_t bytes = 0;
    AccessSite deed{};
    std::shared_ptr<const Strided> rows;  // null: all bytes of `range`
  };

  /// An interval of addresses (not an allocator's segment), and the accesses to it since its last
  /// complete write. `reads` and `writes` contain the latest access of each actor and strided
  /// layout.
  struct Segment {
    Range range;
    std::vector<Access> writes;
    std::vector<Access> reads;
  };

  struct Race {
    std::string key;  // equal for the same operations at the same locations
    std::string text;
    std::size_t count = 1;
    std::string shown;  // with the count
  };

  using Segments = std::map<std::uintptr_t, Segment>;

  void split(std::uintptr_t at);
  void fill_gaps(Range range);
  static void keep(std::vector<Access>& kept, const Access& now, const VectorClock& clock);
  void add(Race&& race);
  void report_race(const char* kind, bool write, const Access& now, const Access& before);

  const bool prints_;
  const std::string file_;
  std::vector<std::string> actors_;
  Segments segments_;
  std::deque<Race> races_;
  std::unordered_map<std::string, std::size_t> known_;  // a race's key to its index
  std::size_t count_ = 0;
};

}  // namespace spillway::emulator
