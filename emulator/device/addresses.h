// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "emulator/device/free_ranges.h"

#include <cstddef>

namespace spillway::emulator {

inline constexpr std::size_t kGranularity = 2U << 20U;

/// Whether `at` is an address of any emulated device, mapped or not. Threads: safe, and in a signal
/// handler too.
bool is_device_address(std::uintptr_t at);

/// The maximum number of separate memory pieces for one user of addresses. The machine limits the
/// mappings of a process (vm.max_map_count), and the rest of the process needs some.
std::size_t most_pieces();

/// Addresses for device memory, taken from large inaccessible arenas. They are in the range that
/// ThreadSanitizer allows, or elsewhere if that is occupied. If the machine allows no large arena
/// (RLIMIT_AS), an arena is just large enough.
/// Threads: under the machine's lock.
class Addresses {
 public:
  /// `step`: size of an arena.
  explicit Addresses(std::size_t step) : step_(step) {}

  /// Inaccessible addresses at a multiple of `alignment`, in units of kGranularity. None if the
  /// machine has none left.
  /// Requires: alignment is a power of two.
  std::optional<Range> take(std::size_t bytes, std::size_t alignment);

  /// As take, at this address. False if it is not free.
  bool take(Range range) { return free_.take(range); }

  /// Releases addresses of `take` and makes them inaccessible again, unless that would create too
  /// many pieces.
  void give(Range range);

 private:
  bool grow(std::size_t bytes);

  const std::size_t step_;
  FreeRanges free_;
};

/// Makes `range` of an arena inaccessible. False if the machine refuses; the range is then
/// unchanged.
bool make_inaccessible(Range range);

}  // namespace spillway::emulator
