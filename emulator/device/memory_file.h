// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "emulator/device/free_ranges.h"

#include <sys/types.h>

#include <map>
#include <string>

namespace spillway::emulator {

/// The fill value of SPILLWAY_EMULATE_POISON: NaN in every floating-point type, -1 in every integer
/// type.
inline constexpr unsigned char kPoison = 0xFF;

/// The physical memory of one device: one sparse file, because a file per block would exceed the
/// limit on open files. Memory is at the offset equal to its address if possible, so that the
/// machine merges adjacent mappings. Memory that is remapped stays at its first offset. Untouched
/// memory costs nothing.
///
/// Threads: under the machine's lock.
class MemoryFile {
 public:
  /// Memory is below kNotes; records that processes leave for each other are above it.
  static constexpr off_t kNotes = 1LL << 48U;
  static constexpr off_t kSize = 1LL << 49U;

  explicit MemoryFile(int device) : device_(device) {}

  /// The name of a device's file.
  static std::string name_of(int device);

  /// Its number in the machine.
  [[nodiscard]] int device() const { return device_; }

  /// The open file; -1 with a line on stderr if the machine refuses one.
  int descriptor();

  /// An offset for `bytes` bytes: the address itself if that is free and not 0. None if the file is
  /// full.
  std::optional<off_t> place(std::uintptr_t address, std::size_t bytes);
  /// Releases the offset and returns its memory to the machine.
  void drop(off_t offset, std::size_t bytes);

  /// Returns the memory to the machine; it reads as zeros from now on.
  void clear(off_t offset, std::size_t bytes) const;
  /// Maps the file at `range` of an arena. False if the machine refuses.
  bool map(Range range, off_t offset, int protection);
  /// As map, for any file.
  static bool map(int file, Range range, off_t offset, int protection);
  /// Sets every byte to `value`. False if the machine refuses.
  [[nodiscard]] bool fill(off_t offset, std::size_t bytes, unsigned char value) const;

 private:
  struct Placed {
    Range range;
  };

  const int device_;
  int file_ = -1;
  std::map<std::uintptr_t, Placed> placed_;
  FreeRanges free_;  // offsets that are not addresses
};

}  // namespace spillway::emulator
