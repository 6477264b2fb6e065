// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "allocator/base/ids.h"
#include "allocator/lifetime/trace.h"

#include <cstdint>
#include <string>
#include <unordered_map>

namespace spillway {

/// Writer of a trace file. Buffers 64 KiB per write.
/// Threads: confined.
/// Ownership: owns the file, which is closed at destruction. Without `close` the file is a
/// truncated trace.
class TraceFile {
 public:
  TraceFile(DeviceId device, Bytes granularity);
  ~TraceFile();
  TraceFile(const TraceFile&) = delete;
  TraceFile& operator=(const TraceFile&) = delete;

  /// Creates or truncates the file. Errors: kInvalidArgument.
  Status open(const std::string& path);

  /// Adds an event whose tag, stream and pool are the process's ids instead of the trace's numbers.
  void add(TraceEvent event, TagId tag, std::uint64_t stream, std::uint64_t pool);

  /// Writes the rest and the end. Errors: kInvalidArgument if any write has failed.
  Status close();

  /// Events added after a failed write.
  [[nodiscard]] std::uint64_t unwritten() const { return unwritten_; }

 private:
  std::uint32_t number_of(TagId tag);
  void flush();

  std::string path_;
  int file_ = -1;
  int error_ = 0;  // of the first failed write
  std::uint64_t unwritten_ = 0;
  TraceEncoder encoder_;
  std::unordered_map<TagId, std::uint32_t> tags_;
  std::unordered_map<std::uint64_t, std::uint32_t> streams_;
  std::unordered_map<std::uint64_t, std::uint32_t> pools_;
};

}  // namespace spillway
