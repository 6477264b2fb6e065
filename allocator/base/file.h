// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <unistd.h>

#include <utility>

namespace spillway {

/// An open file by its number, closed by its destructor.
class File {
 public:
  File() = default;

  /// Negative: none.
  explicit File(int number) : number_(number) {}

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
