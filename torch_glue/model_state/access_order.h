// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <unordered_map>
#include <vector>

namespace spillway {

/// The order in which a step uses its managed storages. It predicts the next step's uses, so that
/// the storage whose next use is farthest away can be offloaded first. That is the best choice for
/// equal sizes (L. A. Belady, "A study of replacement algorithms for a virtual-storage computer",
/// IBM Systems Journal 5(2), 1966).
/// Threads: confined; the caller holds its lock.
class AccessOrder {
 public:
  /// Identifies a storage in every step. A gradient is a new storage each time, with the same
  /// identity.
  using Id = std::uint64_t;
  static constexpr std::uint64_t kUnknown = std::numeric_limits<std::uint64_t>::max();
  /// Later uses of a step are not recorded.
  static constexpr std::size_t kMostUses = 1U << 22U;

  /// A storage is used. Two uses in a row are two, if the recorded step has both.
  void use(Id id);

  /// The step has ended: its uses predict those of the next one. A step without uses is ignored.
  void end_step();

  /// Uses from here to the next use of `id`, where the recorded step follows itself. An unknown one
  /// is farther than all known ones. Without a recorded step, all are equally far.
  [[nodiscard]] std::uint64_t distance(Id id) const;

  /// The next use of `id`, in uses since the order was created; kUnknown if it has none. Constant
  /// until `id` is used, or take_changed() returns it. Zero without a recorded step.
  [[nodiscard]] std::uint64_t next_use(Id id) const;

  /// Uses since the order was created that followed a recorded step: the number of the next one.
  [[nodiscard]] std::uint64_t now() const { return passed_; }

  /// The predicted use of that number. Requires: known(), now() <= use < now() + length().
  [[nodiscard]] Id at(std::uint64_t use) const {
    return last_[(place_ + (use - passed_)) % last_.size()];
  }

  /// The place of the next use in the recorded step.
  [[nodiscard]] std::size_t place() const { return place_; }

  /// Uses of a recorded step.
  [[nodiscard]] std::size_t length() const { return last_.size(); }

  /// The number of the use that would be the first one of the next step.
  [[nodiscard]] std::uint64_t end() const { return passed_ + (last_.size() - place_); }

  /// Moves the identities that were passed over without a use since the last call to `changed`.
  /// Returns false if all may have changed.
  bool take_changed(std::vector<Id>& changed);

  /// Whether a step is recorded.
  [[nodiscard]] bool known() const { return !last_.empty(); }

  /// Number of uses of the running step so far, up to kMostUses.
  [[nodiscard]] std::size_t running() const { return running_.size(); }

 private:
  /// Follows the recorded step to its next use of `id`, if that is near: a step may skip or repeat
  /// some.
  void follow(Id id);
  void pass_over(std::size_t count);

  std::vector<Id> last_;                                     // of the recorded step
  std::unordered_map<Id, std::vector<std::size_t>> places_;  // in last_, in order
  std::vector<Id> running_;
  std::size_t place_ = 0;        // in last_: the next use
  std::uint64_t passed_ = 0;     // uses of recorded steps that have been followed
  std::vector<Id> passed_over_;  // since take_changed()
  bool all_changed_ = false;     // likewise
};

}  // namespace spillway
