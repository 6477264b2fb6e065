// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "allocator/base/bytes.h"
#include "allocator/base/file.h"
#include "allocator/base/result.h"

#include <cstddef>
#include <functional>
#include <memory>
#include <string>

namespace spillway {

/// A file of fixed size that is mapped into memory and has no name: nothing else can open it, and
/// its space on the disk is free again as soon as it goes, however the process ends.
///
/// Threads: safe, but take(). Ownership: the code that has some of it has it all.
class HostFile {
 public:
  /// All of its space is reserved, so that writing to it cannot fail for want of space.
  /// Errors: c10::ValueError naming `offload_device` (what is no directory, or has too little
  /// space); c10::Error.
  static std::shared_ptr<HostFile> create(const std::string& directory, Bytes size);

  HostFile(File file, std::byte* data, Bytes size)
      : file_(std::move(file)), data_(data), size_(size) {}

  ~HostFile();
  HostFile(const HostFile&) = delete;
  HostFile& operator=(const HostFile&) = delete;

  /// The next `size` bytes. Requires: there are as many.
  std::byte* take(Bytes size);

  [[nodiscard]] bool has(const std::byte* at) const {
    return !std::less<>()(at, data_) && std::less<>()(at, data_ + size_.count());
  }

  /// Begins bringing bytes of the mapping into memory, where the system does that.
  void expect(const std::byte* at, Bytes size) const;
  /// Copies from and to the mapping, so that what the disk refuses is an error and not a signal.
  /// Errors: kInvalidArgument with the system's reason.
  Status read(const std::byte* from, std::byte* to, Bytes size) const;
  Status write(const std::byte* from, std::byte* to, Bytes size) const;

 private:
  const File file_;
  std::byte* const data_;
  const Bytes size_;
  Bytes taken_;
};

}  // namespace spillway
