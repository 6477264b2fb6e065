// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "allocator/base/file.h"
#include "allocator/base/result.h"

#include <cstdint>

namespace spillway {

/// Another process, whose open files can be taken over. Ownership: keeps its number from being
/// given to another one.
class OtherProcess {
 public:
  /// Errors: kNotReady where it has ended, or the kernel has no such door.
  static Result<OtherProcess> open(std::int32_t process, std::uint64_t started);

  /// A file of the other process, open here too. Errors: kNotReady where it has none of that number
  /// or the kernel does not permit it; the detail says what to set.
  [[nodiscard]] Result<File> take(int number) const;

 private:
  OtherProcess(std::int32_t process, File file) : process_(process), file_(std::move(file)) {}

  std::int32_t process_;
  File file_;
};

}  // namespace spillway
