// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "emulator/operators/operators.h"

#include <cstddef>
#include <cstdint>
#include <unordered_map>
#include <vector>

namespace spillway::operators {

/// Sets the role of the calling thread's allocations during its lifetime.
class AllocatesFor {
 public:
  explicit AllocatesFor(int role);
  ~AllocatesFor();
  AllocatesFor(const AllocatesFor&) = delete;
  AllocatesFor& operator=(const AllocatesFor&) = delete;

 private:
  int before_;
};

/// The blocks of one device by owner, now and at the peak. Its size is that of the blocks allocated
/// then, however long the program runs.
/// Threads: the caller's lock.
class Ledger {
 public:
  using Block = spillway_operators_block;

  void allocated(std::uintptr_t at, const Block& block);
  /// Ignores blocks that were allocated before the ledger began.
  void freed(std::uintptr_t at);
  void set_role(std::uintptr_t at, int role);
  void fetched(std::uintptr_t at, int role);
  void ended(const Block& wanted);

  [[nodiscard]] std::vector<Block> at_peak() const;

  [[nodiscard]] std::size_t times_ended() const { return times_ended_; }

  [[nodiscard]] const Block& first_wanted() const { return first_wanted_; }

  [[nodiscard]] std::uint64_t held_at_end() const { return held_at_end_; }

 private:
  struct Live {
    Block block;
    std::uint64_t number;
  };

  std::unordered_map<std::uintptr_t, Live> live_;
  std::vector<Block> gone_;  // allocated at the peak, and freed since
  std::uint64_t count_ = 0;
  std::uint64_t held_ = 0;
  std::uint64_t peak_ = 0;
  std::uint64_t peak_at_ = 0;  // the number of the last block before it

  std::size_t times_ended_ = 0;
  Block first_wanted_{};
  std::uint64_t held_at_end_ = 0;
};

}  // namespace spillway::operators
