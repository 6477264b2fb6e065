// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "allocator/base/bytes.h"
#include "allocator/base/result.h"

#include <cstddef>
#include <cstdint>
#include <deque>
#include <list>
#include <optional>
#include <utility>
#include <vector>

namespace spillway {

/// A share in [0, 1] as an integer over 2^40, rounded down, so that byte arithmetic with it is
/// exact.
class Ratio {
 public:
  /// Errors: kInvalidArgument for NaN and for values outside [0, 1]; the detail names value and
  /// range.
  static Result<Ratio> of(double value);
  [[nodiscard]] double value() const;

  [[nodiscard]] bool zero() const { return numerator_ == 0; }

  [[nodiscard]] bool one() const { return share_of(Bytes{~0ULL}) == Bytes{~0ULL}; }

  /// The largest number of bytes that is at most this share of `total`.
  [[nodiscard]] Bytes share_of(Bytes total) const;
  friend bool operator==(Ratio, Ratio) = default;

 private:
  explicit Ratio(std::uint64_t numerator) : numerator_(numerator) {}

  std::uint64_t numerator_;
};

/// Chooses which of a step's offloadable storages move, so that their bytes are at most the ratio
/// of all offloadable bytes and less than one storage below it (invariant 7 in docs/invariants.md),
/// from the first step on. Pure: no clock, no CUDA.
///
/// Wherever a step ends, no more than its share has moved: a storage leaves when the bytes seen so
/// far allow it, and one that is to leave and may not yet waits its turn.
///
/// A sequence of sizes that is new is spread evenly: a storage moves when that keeps the moved
/// bytes within the ratio of the bytes seen so far. A known one is planned: the earliest storages
/// move (they are offloaded longest), and of those that one node saves for the first time the
/// largest first; not those that free nothing, and not those that are used again at once, unless
/// the share cannot be met to within one storage without them. While a step may still become
/// several known ones, what any of them moves may move. From the first difference to all of them
/// on, the rest is spread evenly.
///
/// Threads: confined; the runtime holds its lock.
class RatioChooser {
 public:
  enum class Choice {
    kKeep,  // the ratio is met without it
    kWait,  // it moves when take_due() says so, and stays until then
    kMove,
    kReferencedElsewhere,  // was alive at its unpack in an earlier step of this shape: moving it
                           // frees nothing
  };

  explicit RatioChooser(Ratio ratio) : ratio_(ratio) {}

  [[nodiscard]] Ratio ratio() const { return ratio_; }

  /// The next offloadable storage of this step. Its index in the step is `seen() - 1` afterwards.
  /// `node` numbers the node that saves it: those that follow one another with the same number
  /// are equals. Without one it has no equals.
  Choice choose(Bytes size, std::optional<std::uint64_t> node = std::nullopt);

  /// The storages that waited and move now, since the last choose().
  std::vector<std::size_t> take_due() { return std::exchange(due_, {}); }

  /// The storage with that index in this step could not be moved after all (no host memory, or it
  /// has ended): it stays, and counts as seen.
  void not_moved(std::size_t index);
  /// The storage with that index in this step was still alive when it was unpacked. True where that
  /// is news to its shape.
  bool alive_at_unpack(std::size_t index);
  /// Nobody else held it when it was unpacked, although it stayed as held elsewhere.
  void not_held(std::size_t index);
  /// It was used again before anything of another node was saved or used: to move it only costs.
  void used_at_once(std::size_t index);
  /// Closes the step: what was seen becomes, or confirms, the plan for its shape.
  void end_step();
  /// Closes a step that was given up before its backward pass: what is known stays as it was.
  void abandon_step();

  [[nodiscard]] std::size_t seen() const { return sites_.size(); }

  [[nodiscard]] Bytes seen_bytes() const { return seen_bytes_; }  // offloadable, this step

  [[nodiscard]] Bytes offloaded_bytes() const { return moved_bytes_; }  // of those, that have moved

  /// This step is, so far, one that is known.
  [[nodiscard]] bool planned() const { return !candidates_.empty(); }

  [[nodiscard]] Bytes size(std::size_t index) const { return sites_[index].size; }

  /// The storages of one node share a number; others have other ones.
  [[nodiscard]] std::size_t place(std::size_t index) const { return sites_[index].place; }

  [[nodiscard]] std::uint64_t mismatches() const { return mismatches_; }

 private:
  struct Site {
    Bytes size;
    std::size_t place = 0;  // counts the nodes
    Choice choice = Choice::kKeep;
    bool alive = false;
    bool not_held = false;
    bool at_once = false;
  };

  /// A storage of a known shape.
  struct Planned {
    Bytes size;
    std::size_t place = 0;
    bool moves = false;
    bool held = false;
    bool at_once = false;
    /// The steps in a row in which it was held, and how many make a verdict of it: one, and twice
    /// as many each time that a verdict turned out wrong.
    unsigned in_a_row = 0;
    unsigned needed = 1;

    void learn(const Site& seen);
    friend bool operator==(const Planned&, const Planned&) = default;
  };

  using Shape = std::vector<Planned>;

  void narrow_candidates(Bytes size);
  [[nodiscard]] Choice planned_choice(std::size_t index) const;

  [[nodiscard]] bool fits(Bytes size) const {
    return moved_bytes_ + size <= ratio_.share_of(seen_bytes_);
  }

  void make_plan(Shape& shape) const;

  Ratio ratio_;
  std::vector<Site> sites_;
  std::deque<std::size_t> waiting_;
  std::vector<std::size_t> due_;
  std::optional<std::uint64_t> node_;  // of the last storage
  Bytes seen_bytes_;
  Bytes moved_bytes_;
  std::uint64_t mismatches_ = 0;
  std::list<Shape> shapes_;         // the last used one first
  std::vector<Shape*> candidates_;  // shapes that begin as this step does
};

}  // namespace spillway
