// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "allocator/base/bytes.h"
#include "allocator/base/result.h"
#include "allocator/driver/handles.h"
#include "allocator/heap/range.h"

#include <cstddef>
#include <vector>

namespace spillway {

/// Device addresses without memory behind them, reserved in large pieces and given out as equal
/// ranges. Each range is a power of two and at least twice the device's memory, so that a region
/// runs out of memory long before it runs out of addresses.
///
/// Threads: confined; the heap holds its lock.
/// Ownership: owns the reservations; nothing may be mapped any more when it is destroyed.
class AddressSpace {
 public:
  /// Ranges that are reserved at once.
  static constexpr std::size_t kRanges = 8;

  explicit AddressSpace(const driver::Device& device) : device_(device) {}

  ~AddressSpace();
  AddressSpace(const AddressSpace&) = delete;
  AddressSpace& operator=(const AddressSpace&) = delete;

  /// Asks the device for its sizes and reserves the first piece. Errors: kDriver.
  Status open();

  /// The next range; reserves another piece where none is left. Errors: kDriver.
  Result<Range> take();

  /// The piece that the latest range was taken from.
  [[nodiscard]] Range piece() const { return reserved_.back(); }

  /// The kind of memory that chunks are made of.
  [[nodiscard]] const CUmemAllocationProp& memory() const { return memory_; }

  [[nodiscard]] Bytes granularity() const { return granularity_; }

  [[nodiscard]] Bytes most_chunk() const { return most_chunk_; }

  [[nodiscard]] Bytes range_size() const { return range_size_; }

 private:
  Status reserve();

  const driver::Device device_;
  CUmemAllocationProp memory_{};
  Bytes granularity_;  // physical memory comes in multiples of this
  Bytes most_chunk_;   // a chunk is released only whole: small ones strand little
  Bytes range_size_;
  std::vector<Range> reserved_;
  Bytes given_;  // of the latest reservation
};

}  // namespace spillway
