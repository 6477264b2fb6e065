// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "allocator/base/bytes.h"
#include "allocator/base/file.h"
#include "allocator/base/result.h"

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace spillway {

/// The data that a process needs to map memory of another process on the same machine.
struct MemoryHandle {
  /// Physical memory, by its file descriptor in the sender.
  struct Piece {
    std::int32_t file = -1;
    Bytes size;

    friend bool operator==(const Piece&, const Piece&) = default;
  };

  static constexpr std::size_t kMaxPieces = 1U << 16U;

  std::int32_t process = 0;  // the sender
  // file descriptor of the sender; the file contains exactly these bytes
  std::int32_t proof = -1;
  std::uint64_t started = 0;  // start time of the sender; a later process may get the same ID
  std::uint64_t serial = 0;   // unique within the sender
  std::vector<Piece> pieces;  // adjacent

  /// Requires: at most kMaxPieces.
  [[nodiscard]] std::string bytes() const;
  /// Decodes the result of `bytes`. Errors: kInvalidArgument for any other input.
  static Result<MemoryHandle> read(std::string_view bytes);

  [[nodiscard]] Bytes size() const;

  friend bool operator==(const MemoryHandle&, const MemoryHandle&) = default;
};

/// Another process whose open files can be duplicated.
/// Ownership: keeps its process ID from being reused.
class OtherProcess {
 public:
  /// Errors: kNotReady if it has ended, or the kernel lacks the interface.
  static Result<OtherProcess> open(std::int32_t process, std::uint64_t started);

  /// Duplicates a file of the other process.
  /// Errors: kNotReady if it has no such file descriptor or the kernel does not permit it; the
  /// detail names the setting to change.
  [[nodiscard]] Result<File> take(int number) const;

 private:
  OtherProcess(std::int32_t process, File file) : process_(process), file_(std::move(file)) {}

  std::int32_t process_;
  File file_;
};

}  // namespace spillway
