// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

namespace spillway {

/// Duplicates `number` (closed on exec) to a descriptor above 2, or returns `number` itself if it
/// is above 2 or negative. A program that starts with closed standard streams gets descriptors 0 to
/// 2 from open(), and its prints would go into our files.
/// Ownership: the caller owns the result; `number` is closed unless it is the result.
/// Errors: -1 with errno set; `number` is closed then.
inline int above_standard_streams(int number) {
  if (number < 0 || number > STDERR_FILENO) return number;
  const int moved = ::fcntl(number, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
  const int error = errno;
  ::close(number);
  errno = error;
  return moved;
}

/// An open file, closed by its destructor.
class File {
 public:
  File() = default;

  /// Owns `number`; negative: none. The file's descriptor is above 2 (above_standard_streams()).
  /// Not open(), with errno set, if no descriptor is left.
  explicit File(int number) : number_(above_standard_streams(number)) {}

  File(File&& other) noexcept : number_(std::exchange(other.number_, -1)) {}

  File& operator=(File&& other) noexcept {
    std::swap(number_, other.number_);
    return *this;
  }

  ~File() {
    if (number_ >= 0) ::close(number_);
  }

  File(const File&) = delete;
  File& operator=(const File&) = delete;

  [[nodiscard]] bool open() const { return number_ >= 0; }

  [[nodiscard]] int number() const { return number_; }

  /// The caller closes it.
  int release() { return std::exchange(number_, -1); }

 private:
  int number_ = -1;
};

}  // namespace spillway
