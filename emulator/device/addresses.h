// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "emulator/device/free_ranges.h"

#include <cstddef>

namespace spillway::emulator {

inline constexpr std::size_t kGranularity = 2U << 20U;

/// Whether `at` is an address of any emulated device, mapped or not. Threads: safe, and in a signal
/// handler too.
bool is_device_address(std::uintptr_t at);

/// How many separate pieces of memory one user of addresses should make at most: the machine limits
/// the mappings of a process (vm.max_map_count), and the rest of the process needs some.
std::size_t most_pieces();

/// Addresses for device memory, taken from large arenas that nothing can be touched in. They lie
/// where ThreadSanitizer allows memory, and anywhere where that place is taken; where the machine
/// allows no large arena (RLIMIT_AS), just large enough.
/// Threads: under the machine's lock.
class Addresses {
 public:
  /// `step` is how much to ask of the machine at once.
  explicit Addresses(std::size_t step) : step_(step) {}

  /// Inaccessible addresses at a multiple of `alignment`, in units of kGranularity. Nothing where
  /// the machine has none left. Requires: alignment is a power of two.
  std::optional<Range> take(std::size_t bytes, std::size_t alignment);

  /// As take, at this place. False where it is not free.
  bool take(Range range) { return free_.take(range); }

  /// Takes back what `take` gave, and makes it inaccessible again, unless that made too many
  /// pieces.
  void give(Range range);

 private:
  bool grow(std::size_t bytes);

  const std::size_t step_;
  FreeRanges free_;
};

/// Makes `range` of an arena inaccessible. False where the machine refuses; it is then as it was.
bool make_inaccessible(Range range);

}  // namespace spillway::emulator
