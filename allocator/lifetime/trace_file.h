// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "allocator/base/ids.h"
#include "allocator/lifetime/trace.h"

#include <cstdint>
#include <string>
#include <unordered_map>

namespace spillway {

/// A trace file that is being written. Collects 64 KiB before it writes.
/// Threads: confined. Ownership: the file, closed at its end; one that is not ended by `close`
/// stays as a trace that is not complete.
class TraceFile {
 public:
  TraceFile(DeviceId device, Bytes granularity);
  ~TraceFile();
  TraceFile(const TraceFile&) = delete;
  TraceFile& operator=(const TraceFile&) = delete;

  /// Makes the file again. Errors: kInvalidArgument.
  Status open(const std::string& path);

  /// Adds an event whose tag, stream and pool are given by the process's ids instead of by the
  /// trace's numbers.
  void add(TraceEvent event, TagId tag, std::uint64_t stream, std::uint64_t pool);

  /// Writes what is left and the end. Errors: kInvalidArgument where any write has failed.
  Status close();

  /// Events that were given after a write had failed.
  [[nodiscard]] std::uint64_t unwritten() const { return unwritten_; }

 private:
  std::uint32_t number_of(TagId tag);
  void flush();

  std::string path_;
  int file_ = -1;
  int error_ = 0;  // of the first write that failed
  std::uint64_t unwritten_ = 0;
  TraceEncoder encoder_;
  std::unordered_map<TagId, std::uint32_t> tags_;
  std::unordered_map<std::uint64_t, std::uint32_t> streams_;
  std::unordered_map<std::uint64_t, std::uint32_t> pools_;
};

}  // namespace spillway
