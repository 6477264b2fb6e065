// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "emulator/device/strided.h"

#include <atomic>
#include <cstdint>
#include <map>

namespace spillway::emulator {

/// Memory that is mapped at several addresses. The order checker records all accesses at the first
/// one.
/// Threads: under the machine's lock.
class Views {
 public:
  [[nodiscard]] bool empty() const { return views_.empty(); }

  /// Accesses to `view` are accesses to the memory mapped from `original` on too.
  void add(Range view, std::uintptr_t original) { views_[view.begin] = {view, original}; }

  /// Removes the views in this range.
  void remove(Range range);

  /// Calls `see(bytes)` with the bytes at their first addresses. A strided access to memory in
  /// several mappings counts as an access to all bytes in between.
  template <typename See>
  void originals(const Strided& bytes, See see) const {
    const Range extent = bytes.extent();
    auto view = first_overlap(views_, extent);
    if (view == views_.end()) return see(bytes);
    if (view->second.range.contains(extent)) {
      return see(bytes.moved_to(view->second.original + (extent.begin - view->first)));
    }
    std::uintptr_t at = extent.begin;
    while (at < extent.end) {
      view = first_overlap(views_, {at, extent.end});
      const std::uintptr_t begin = view == views_.end() ? extent.end : view->first;
      if (at < begin) {
        see(Strided(Range{at, begin}));
        at = begin;
        continue;
      }
      const std::uintptr_t end =
          view->second.range.end < extent.end ? view->second.range.end : extent.end;
      const std::uintptr_t original = view->second.original + (at - view->first);
      see(Strided(Range{original, original + (end - at)}));
      at = end;
    }
  }

 private:
  struct View {
    Range range;
    std::uintptr_t original = 0;
  };

  std::map<std::uintptr_t, View> views_;
};

/// Incremented with every operation submitted to any stream. A thread can thus detect without the
/// lock that a stream which it has drained is still empty.
/// Threads: safe.
inline constinit std::atomic<std::uint64_t> work_given{1};

/// Number of captures in progress. Threads: safe.
inline constinit std::atomic<int> captures_going_on{0};

/// Incremented whenever memory is released or access to it is revoked. Threads use it to validate
/// their cached ranges.
/// Threads: safe.
inline constinit std::atomic<std::uint64_t> memory_generation{1};

inline void bump_mapping_generation() {
  memory_generation.fetch_add(1, std::memory_order_release);
}

}  // namespace spillway::emulator
