// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <c10/util/SmallVector.h>
#include <c10/util/flat_hash_map.h>

#include <optional>

namespace spillway::operators {

/// Index of an object in a list. Most operators have few tensors, for which linear search is faster
/// than a table; the lists of foreach operators have thousands.
/// Ownership: borrows the objects, which must stay alive.
class Positions {
 public:
  /// Appends an object; an object that is added twice is found at its first position.
  void add(const void* object) {
    const size_t position = objects_.size();
    objects_.push_back(object);
    if (position == kSearched) {
      for (size_t i = 0; i < position; ++i)
        table_.emplace(objects_[i], i);
    }
    if (position >= kSearched) table_.emplace(object, position);
  }

  [[nodiscard]] std::optional<size_t> find(const void* object) const {
    if (objects_.size() > kSearched) {
      const auto found = table_.find(object);
      return found == table_.end() ? std::nullopt : std::optional<size_t>(found->second);
    }
    for (size_t i = 0; i < objects_.size(); ++i) {
      if (objects_[i] == object) return i;
    }
    return std::nullopt;
  }

 private:
  static constexpr size_t kSearched = 8;

  c10::SmallVector<const void*, kSearched> objects_;
  ska::flat_hash_map<const void*, size_t> table_;  // empty up to kSearched objects
};

}  // namespace spillway::operators
