// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "allocator/base/file.h"
#include "allocator/base/result.h"

#include <cstdint>

namespace spillway {

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
