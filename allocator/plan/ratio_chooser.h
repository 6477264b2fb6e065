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

/// A share in [0, 1] as an integer multiple of 2^-40, rounded down, so that byte arithmetic with it
/// is exact.
class Ratio {
 public:
  /// Errors: kInvalidArgument for NaN and for values outside [0, 1]; the detail contains value and
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

/// Chooses which of a step's offloadable storages are offloaded. Their bytes are at most the ratio
/// of all offloadable bytes and less than one storage below it (invariant 7 in docs/invariants.md),
/// from the first step on. Pure: no clock, no CUDA.
///
/// At any point of a step at most the ratio of the bytes so far has been offloaded. A storage is
/// offloaded when the bytes seen so far allow it; until then it waits.
///
/// A new sequence of sizes is spread evenly: a storage is offloaded if the offloaded bytes then
/// stay within the ratio of the bytes seen so far. A known sequence is planned. The earliest
/// storages are offloaded, because they stay offloaded longest; among those first saved by one
/// node, the largest come first. Storages that free nothing are never offloaded. Storages that are
/// used again at once are offloaded only if the ratio cannot be met otherwise. While a step may
/// still match several known ones, a storage may be offloaded if any of their plans offloads it.
/// After the last mismatch the rest is spread evenly.
///
/// Threads: confined; the runtime holds its lock.
class RatioChooser {
 public:
  enum class Choice {
    kKeep,  // the ratio is met without it
    kWait,  // it stays until take_due() returns it, then it is offloaded
    kOffload,
    // still allocated at its unpack in an earlier step of this shape: offloading it
    kReferencedElsewhere,
    // frees nothing
  };

  explicit RatioChooser(Ratio ratio) : ratio_(ratio) {}

  [[nodiscard]] Ratio ratio() const { return ratio_; }

  /// Decides on the next offloadable storage of this step. Afterwards its index in the step is
  /// `storages_seen() - 1`. `node` numbers the node that saves it. Consecutive storages with the
  /// same number are equals; without a number a storage has no equals.
  Choice choose(Bytes size, std::optional<std::uint64_t> node = std::nullopt);

  /// Returns the waiting storages that are due since the last choose().
  std::vector<std::size_t> take_due() { return std::exchange(due_, {}); }

  /// The storage with that index could not be offloaded (no host memory, or it has ended): it
  /// stays, and counts as seen.
  void not_offloaded(std::size_t index);
  /// The storage with that index was still allocated when it was unpacked. True if that is new for
  /// its shape.
  bool alive_at_unpack(std::size_t index);
  /// It had no other reference when it was unpacked, although it was kept as referenced elsewhere.
  void unreferenced(std::size_t index);
  /// It was used again before another node saved or used a storage: offloading it has only costs.
  void used_at_once(std::size_t index);
  /// Closes the step: creates or confirms the plan for its shape.
  void end_step();
  /// Closes a step that was abandoned before its backward pass; known shapes are unchanged.
  void abandon_step();

  [[nodiscard]] std::size_t storages_seen() const { return sites_.size(); }

  [[nodiscard]] Bytes seen_bytes() const { return seen_bytes_; }  // offloadable, in this step

  [[nodiscard]] Bytes offloaded_bytes() const { return offloaded_bytes_; }  // offloaded among them

  /// Whether this step matches a known one so far.
  [[nodiscard]] bool matches_known() const { return !candidates_.empty(); }

  [[nodiscard]] Bytes size(std::size_t index) const { return sites_[index].size; }

  /// A number that only the storages of one node share.
  [[nodiscard]] std::size_t node_index(std::size_t index) const { return sites_[index].node_index; }

  [[nodiscard]] std::uint64_t mismatches() const { return mismatches_; }

 private:
  struct Site {
    Bytes size;
    std::size_t node_index = 0;  // counts the nodes
    Choice choice = Choice::kKeep;
    bool alive = false;
    bool unreferenced = false;
    bool at_once = false;
  };

  /// A storage of a known shape.
  struct Planned {
    Bytes size;
    std::size_t node_index = 0;
    bool offload = false;
    bool referenced_elsewhere = false;
    bool at_once = false;
    /// The number of consecutive steps in which it was referenced elsewhere, and the number that
    /// decides it: one, doubled after each wrong decision.
    unsigned in_a_row = 0;
    unsigned needed = 1;

    void learn(const Site& seen);
    friend bool operator==(const Planned&, const Planned&) = default;
  };

  using Shape = std::vector<Planned>;

  void narrow_candidates(Bytes size);
  [[nodiscard]] Choice planned_choice(std::size_t index) const;

  [[nodiscard]] bool fits(Bytes size) const {
    return offloaded_bytes_ + size <= ratio_.share_of(seen_bytes_);
  }

  void make_plan(Shape& shape) const;

  Ratio ratio_;
  std::vector<Site> sites_;
  std::deque<std::size_t> waiting_;
  std::vector<std::size_t> due_;
  std::optional<std::uint64_t> node_;  // of the last storage
  Bytes seen_bytes_;
  Bytes offloaded_bytes_;
  std::uint64_t mismatches_ = 0;
  std::list<Shape> shapes_;         // the most recently used first
  std::vector<Shape*> candidates_;  // shapes that match this step so far
};

}  // namespace spillway
