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

/// A mapped file of fixed size without a name. Other processes cannot open it, and its disk space
/// is freed with it, however the process ends.
///
/// Threads: safe, except take(). Ownership: each reference to a part keeps the whole file.
class HostFile {
 public:
  /// Reserves all of its space, so that writes cannot fail for lack of space.
  /// Errors: c10::ValueError with `offload_device` in the text (not a directory, or too little
  /// space); c10::Error.
  static std::shared_ptr<HostFile> create(const std::string& directory, Bytes size);

  HostFile(File file, std::byte* data, Bytes size)
      : file_(std::move(file)), data_(data), size_(size) {}

  ~HostFile();
  HostFile(const HostFile&) = delete;
  HostFile& operator=(const HostFile&) = delete;

  /// The next `size` bytes. Requires: that many bytes are left.
  std::byte* take(Bytes size);

  [[nodiscard]] bool has(const std::byte* at) const {
    return !std::less<>()(at, data_) && std::less<>()(at, data_ + size_.count());
  }

  /// Starts reading bytes of the mapping into memory, if the system supports it.
  void expect(const std::byte* at, Bytes size) const;
  /// Copies from and to the mapping. Disk failures are returned as errors instead of a signal.
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
