// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "allocator/base/bytes.h"
#include "allocator/base/result.h"

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace spillway {

/// What one process must know to map memory of another one on the same machine.
struct MemoryHandle {
  /// Physical memory, by the number that its file has in the sender.
  struct Piece {
    std::int32_t file = -1;
    Bytes size;

    friend bool operator==(const Piece&, const Piece&) = default;
  };

  static constexpr std::size_t kMaxPieces = 1U << 16U;

  std::int32_t process = 0;   // the sender
  std::int32_t proof = -1;    // the number of a file of the sender's that holds these very bytes
  std::uint64_t started = 0;  // when the sender was: another process may get its number later
  std::uint64_t serial = 0;   // tells what one process has shared apart
  std::vector<Piece> pieces;  // side by side

  /// Requires: at most kMaxPieces.
  [[nodiscard]] std::string bytes() const;
  /// What `bytes` gave. Errors: kInvalidArgument for anything else, whatever it is.
  static Result<MemoryHandle> read(std::string_view bytes);

  [[nodiscard]] Bytes size() const;

  friend bool operator==(const MemoryHandle&, const MemoryHandle&) = default;
};

}  // namespace spillway
