// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "allocator/base/bytes.h"
#include "allocator/base/result.h"
#include "allocator/driver/handles.h"
#include "allocator/heap/range.h"

#include <cstdint>
#include <map>

namespace spillway {

/// Physical device memory: mapped at one place for its whole life, and unmapped only whole.
struct Chunk {
  Bytes size;
  CUmemGenericAllocationHandle handle;
};

/// Which parts of a range of addresses have memory behind them: chunks, and gaps between them.
///
/// Threads: confined; the heap holds its lock.
/// Ownership: owns the chunks. The device must be done with them when it is destroyed.
class Backing {
 public:
  /// Requires: `range` begins and ends at multiples of `granularity`, and `most` is one.
  Backing(const driver::Device& device, Range range, Bytes granularity, Bytes most);
  ~Backing();
  Backing(const Backing&) = delete;
  Backing& operator=(const Backing&) = delete;

  /// The kind of memory that chunks are made of.
  static CUmemAllocationProp memory_of(const driver::Device& device);

  [[nodiscard]] const Range& range() const { return range_; }

  [[nodiscard]] Bytes granularity() const { return granularity_; }

  [[nodiscard]] const std::map<driver::DevicePtr, Chunk>& chunks() const { return chunks_; }

  [[nodiscard]] const std::map<driver::DevicePtr, Bytes>& gaps() const { return gaps_; }

  /// Mapped, but neither accessible nor given back, because the driver refused to undo a mapping
  /// that had failed half way.
  [[nodiscard]] Bytes stuck() const { return stuck_; }

  /// Creates chunks of at most `most` bytes and maps them side by side; says how many. Requires:
  /// `where` lies in one gap and is made of whole granules. Errors: kOutOfDeviceMemory, kDriver;
  /// then nothing is mapped.
  Result<std::uint64_t> map(Range where);

  /// Unmaps the chunk at `at` and gives it back. False where the driver refuses; the chunk is then
  /// as it was. Requires: the device is done with it.
  bool unmap(driver::DevicePtr at);

 private:
  Status make_chunks(Range where, std::map<driver::DevicePtr, Chunk>& made);
  void close_gap(Range where);
  void open_gap(Range where);

  const driver::Device device_;
  const Range range_;
  const Bytes granularity_;
  const Bytes most_;
  std::map<driver::DevicePtr, Chunk> chunks_;
  std::map<driver::DevicePtr, Bytes> gaps_;  // no two touch
  Bytes stuck_;
};

}  // namespace spillway
