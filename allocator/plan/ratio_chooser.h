// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "allocator/base/bytes.h"
#include "allocator/base/result.h"

#include <cstdint>
#include <map>
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

  /// The largest number of bytes that is at most this share of `total`.
  [[nodiscard]] Bytes share_of(Bytes total) const;
  friend bool operator==(Ratio, Ratio) = default;

 private:
  explicit Ratio(std::uint64_t numerator) : numerator_(numerator) {}

  std::uint64_t numerator_;
};

/// Chooses which of a step's movable storages move, so that their bytes are at most the ratio of
/// all movable bytes and less than one storage below it (law 7), from the first step on. Pure: no
/// clock, no CUDA.
///
/// A sequence of sizes that is new is spread evenly: a storage moves when that keeps the moved
/// bytes within the ratio of the bytes seen so far. A sequence that begins as a known one is
/// planned: the earliest storages move (they are away longest), except those that turned out to
/// free nothing. A difference in mid-step goes back to the even spread. A planned step that stops
/// before its plan does may have moved more than its share: the plan counted on what never came.
///
/// Threads: confined; the runtime holds its lock.
class RatioChooser {
 public:
  enum class Choice {
    kKeep,  // the ratio is met without it
    kMove,
    kHeldElsewhere,  // was alive at its unpack in an earlier step of this shape: moving it frees
                     // nothing
  };

  explicit RatioChooser(Ratio ratio) : ratio_(ratio) {}

  [[nodiscard]] Ratio ratio() const { return ratio_; }

  /// The next movable storage of this step. Its index in the step is `seen() - 1` afterwards.
  Choice choose(Bytes size);
  /// The storage with that index in this step could not be moved after all (no host memory): it
  /// stays, and counts as seen.
  void not_moved(std::size_t index);
  /// The storage with that index in this step was still alive when it was unpacked.
  void alive_at_unpack(std::size_t index);
  /// Closes the step: what was seen becomes, or confirms, the plan for its shape.
  void end_step();
  /// Closes a step that was given up before its backward pass: what is known stays as it was.
  void abandon_step();

  [[nodiscard]] std::size_t seen() const { return sites_.size(); }

  [[nodiscard]] Bytes seen_bytes() const { return seen_bytes_; }  // movable, this step

  [[nodiscard]] Bytes moved_bytes() const { return moved_bytes_; }  // of those, chosen to move

  [[nodiscard]] bool planned() const {
    return plan_ != nullptr;
  }  // this step follows a known shape

  [[nodiscard]] std::uint64_t mismatches() const { return mismatches_; }

 private:
  struct Site {
    Bytes size;
    Choice choice;
    bool alive;
  };

  struct Plan {
    std::vector<Site> sites;
  };

  [[nodiscard]] Plan make_plan(std::vector<Site> sites) const;

  Ratio ratio_;
  std::vector<Site> sites_;
  Bytes seen_bytes_;
  Bytes moved_bytes_;
  std::uint64_t mismatches_ = 0;
  const Plan* plan_ = nullptr;
  std::map<std::uint64_t, Plan> plans_;  // by the size of the step's first storage
};

}  // namespace spillway
