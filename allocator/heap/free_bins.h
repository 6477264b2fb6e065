// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "allocator/heap/block.h"

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace spillway {

/// Free blocks by size. Each list has blocks whose sizes differ by at most 1/32. A bit per nonempty
/// list finds the next larger block in constant time.
class FreeBins {
 public:
  /// Sizes are multiples of this.
  static constexpr std::uint64_t kUnit = 512;

  void add(Block* block) {
    const std::size_t bin = bin_of(block->size);
    Block*& head = heads_[bin];
    block->listed_before = nullptr;
    block->listed_after = head;
    if (head != nullptr) {
      head->listed_before = block;
    } else {
      words_[bin / 64] |= std::uint64_t{1} << (bin % 64);
      summary_ |= std::uint64_t{1} << (bin / 64);
    }
    head = block;
  }

  void remove(Block* block) {
    Block* const before = block->listed_before;
    Block* const after = block->listed_after;
    if (after != nullptr) after->listed_before = before;
    if (before != nullptr) {
      before->listed_after = after;
      return;
    }
    const std::size_t bin = bin_of(block->size);
    heads_[bin] = after;
    if (after != nullptr) return;
    words_[bin / 64] &= ~(std::uint64_t{1} << (bin % 64));
    if (words_[bin / 64] == 0) summary_ &= ~(std::uint64_t{1} << (bin / 64));
  }

  /// Changes the size of a listed block.
  void resize(Block* block, Bytes size) {
    if (bin_of(block->size) == bin_of(size)) {
      block->size = size;
      return;
    }
    remove(block);
    block->size = size;
    add(block);
  }

  /// The list of blocks of about `size`; follow Block::listed_after.
  [[nodiscard]] Block* same_bin(Bytes size) const { return heads_[bin_of(size)]; }

  /// The first nonempty list whose blocks are all larger than those of `size`'s list; null if there
  /// is none.
  [[nodiscard]] Block* larger_bin(Bytes size) const {
    const std::size_t bin = bin_of(size) + 1;
    const std::uint64_t in_word = words_[bin / 64] >> (bin % 64);
    if (in_word != 0) return heads_[bin + static_cast<std::size_t>(std::countr_zero(in_word))];
    const std::uint64_t words =
        bin / 64 == kWords - 1 ? 0 : summary_ >> (bin / 64 + 1) << (bin / 64 + 1);
    if (words == 0) return nullptr;
    const auto word = static_cast<std::size_t>(std::countr_zero(words));
    return heads_[word * 64 + static_cast<std::size_t>(std::countr_zero(words_[word]))];
  }

  /// All blocks, by bin.
  [[nodiscard]] std::vector<Block*> all() const;

 private:
  static constexpr std::size_t kWords = 18;  // up to 2^44 bytes

  static std::size_t bin_of(Bytes size) {
    const std::uint64_t units = size.count() / kUnit;
    if (units < 64) return units;
    const auto shift = static_cast<std::size_t>(std::bit_width(units)) - 6;
    return shift * 32 + (units >> shift);
  }

  std::array<Block*, kWords * 64> heads_{};
  std::array<std::uint64_t, kWords> words_{};
  std::uint64_t summary_ = 0;
};

}  // namespace spillway
