// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "emulator/device/free_ranges.h"

#include <sys/types.h>

#include <map>
#include <string>

namespace spillway::emulator {

/// What memory is filled with where SPILLWAY_EMULATE_POISON asks for it: not a number in every
/// floating-point type, -1 in every integer.
inline constexpr unsigned char kPoison = 0xFF;

/// The physical memory of one device: one sparse file, because a file for each block would meet the
/// limit on open files. Memory lies at the offset that equals its address where it can, so that the
/// machine joins neighbours into one mapping; memory that moves about lies where it was mapped
/// first. Untouched memory costs nothing.
///
/// Threads: under the machine's lock.
class MemoryFile {
 public:
  /// Memory lies below kNotes, what processes leave for each other above.
  static constexpr off_t kNotes = 1LL << 48U;
  static constexpr off_t kSize = 1LL << 49U;

  explicit MemoryFile(int device) : device_(device) {}

  /// How the file of a device is called.
  static std::string name_of(int device);

  /// Its number in the machine.
  [[nodiscard]] int device() const { return device_; }

  /// The open file, -1 with a line on stderr where the machine refuses one.
  int descriptor();

  /// An offset for this many bytes: the address itself where that is free and not 0. Nothing where
  /// the file is full.
  std::optional<off_t> place(std::uintptr_t address, std::size_t bytes);
  /// Takes it back and gives its memory to the machine.
  void drop(off_t offset, std::size_t bytes);

  /// Gives the memory to the machine; reading it gives zeros from now on.
  void clear(off_t offset, std::size_t bytes) const;
  /// Maps the file at `range` of an arena. False where the machine refuses.
  bool map(Range range, off_t offset, int protection);
  /// As map, of any file.
  static bool map(int file, Range range, off_t offset, int protection);
  /// Every byte becomes `value`. False where the machine refuses.
  [[nodiscard]] bool fill(off_t offset, std::size_t bytes, unsigned char value) const;

 private:
  struct Placed {
    Range range;
  };

  const int device_;
  int file_ = -1;
  std::map<std::uintptr_t, Placed> placed_;
  FreeRanges free_;  // offsets that are no addresses
};

}  // namespace spillway::emulator
