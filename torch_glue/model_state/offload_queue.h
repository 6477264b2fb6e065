// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "torch_glue/model_state/access_order.h"
#include "torch_glue/model_state/departures.h"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <unordered_map>
#include <vector>

namespace spillway {

/// The managed storages of a device, in the order in which they are to be offloaded: the one whose
/// next use is farthest away first; among equally far ones, the least recently used one. A use
/// takes constant time: storages are ranked when the next one is taken. Threads: confined; the
/// caller holds its lock.
class OffloadQueue {
 public:
  /// Identifies a storage until remove(), after which it may identify another one.
  using Slot = std::uint32_t;

  /// Adds a storage, which counts as used now.
  Slot add(AccessOrder::Id id);
  void remove(Slot slot);

  /// The storage is used, and is in the queue again if it was not. `writes`: its bytes may change.
  void use(Slot slot, bool writes);

  /// The order in which they are used.
  [[nodiscard]] const AccessOrder& order() const { return order_; }

  /// AccessOrder::next_use of the storage.
  [[nodiscard]] std::uint64_t next_use(Slot slot) const {
    return order_.next_use(entries_[slot].id);
  }

  /// Calls `visit` with the storages of that identity.
  template <typename Visit>
  void each_of(AccessOrder::Id id, const Visit& visit) const {
    const auto [first, last] = slots_.equal_range(id);
    for (auto known = first; known != last; ++known)
      visit(known->second);
  }

  /// The step has ended: its uses predict those of the next one. `few`: few bytes left in it. The
  /// next step's order is then coarse: what is used in the same stretch of a step is equally far.
  /// It moves some bytes more, but what was used long ago has been copied in time (copy_early).
  void end_step(bool few = false);

  /// The storage leaves the device.
  void leave(Slot slot);

  /// Whether the storage left before its next write when the last step wrote it where this one did.
  [[nodiscard]] bool is_leaving(Slot slot) const {
    return departures_.expected(entries_[slot].id, entries_[slot].write);
  }

  /// Takes the first storage from the queue, until it is used or returned. `after`: none if it is
  /// used before or at this use.
  std::optional<Slot> take(std::uint64_t after = 0);

  /// Takes, of the storages that are `chosen`, the one whose next use is farthest away. None if
  /// that is less than half as far as the first storage's of the queue.
  template <typename Chosen>
  std::optional<Slot> take_of(const Chosen& chosen) {
    std::optional<Slot> found;
    std::uint64_t farthest = 0;
    for (Slot slot = 0; slot < entries_.size(); ++slot) {
      if (!entries_[slot].exists || entries_[slot].taken || !chosen(slot)) continue;
      const std::uint64_t uses = distance(slot);
      if (!found || uses > farthest) found = slot;
      farthest = std::max(farthest, uses);
    }
    const std::optional<Slot> first = found ? take() : std::nullopt;
    if (!first) return std::nullopt;
    if (*first == *found) return found;
    const bool far = farthest >= distance(*first) / 2;
    put_back(*first);
    if (!far) return std::nullopt;
    entries_[*found].taken = true;
    ++entries_[*found].version;
    return found;
  }

  /// Returns a storage that take() returned to its place in the queue. No effect after remove().
  void put_back(Slot slot);

  /// As put_back(), for one that cannot be offloaded: it is in the queue again after
  /// retry_refused().
  void refuse(Slot slot);
  /// Returns whether there was one.
  bool retry_refused();

 private:
  struct Entry {
    AccessOrder::Id id = 0;
    std::uint64_t last_use = 0;
    std::size_t uses = 0;          // in step `used_in`
    std::uint64_t used_in = 0;     // the step of its last use
    std::size_t write = 0;         // the last of a step's uses that wrote it, from 1 on
    std::uint64_t written_in = 0;  // that step
    std::uint32_t version = 0;     // its other entries in ranked_ are obsolete
    bool exists = false;
    bool taken = false;
    bool moved = false;    // it is in moved_
    bool refused = false;  // it is in refused_
  };

  struct Ranked {
    std::uint64_t stretch;  // of the step, in which its next use is
    std::uint64_t next_use;
    std::uint64_t last_use;
    Slot slot;
    std::uint32_t version;

    /// Whether it is offloaded after `other`.
    bool operator<(const Ranked& other) const {
      if (stretch != other.stretch) return stretch < other.stretch;
      return last_use > other.last_use;
    }
  };

  /// Uses until its next one, at most those of a step.
  [[nodiscard]] std::uint64_t distance(Slot slot) const {
    return std::min<std::uint64_t>(order_.distance(entries_[slot].id), order_.length());
  }

  void move(Slot slot);
  void rank();
  void rank_all();
  /// Adds it to ranked_, if it is in the queue.
  bool rank(Slot slot);

  AccessOrder order_;
  Departures departures_;
  std::uint64_t time_ = 0;  // in uses
  std::uint64_t step_ = 0;
  bool coarse_ = false;
  std::vector<Entry> entries_;
  std::vector<Slot> free_;
  std::unordered_multimap<AccessOrder::Id, Slot> slots_;
  std::vector<Ranked> ranked_;  // a heap; also has obsolete entries
  std::vector<Slot> moved_;     // to be ranked
  std::vector<Slot> refused_;
  std::vector<AccessOrder::Id> passed_over_;  // kept for its memory
};

}  // namespace spillway
