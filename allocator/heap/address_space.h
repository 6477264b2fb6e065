// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "allocator/base/bytes.h"
#include "allocator/base/result.h"
#include "allocator/driver/handles.h"
#include "allocator/heap/range.h"

#include <cstddef>
#include <vector>

namespace spillway {

/// Device addresses without memory behind them, reserved in large pieces and handed out as equal
/// ranges. The size of a range is a power of two and at least twice the device's memory. A heap
/// region therefore runs out of memory long before it runs out of addresses.
///
/// Threads: confined; the heap holds its lock.
/// Ownership: owns the reservations. Nothing may be mapped in them at destruction.
class AddressSpace {
 public:
  /// Ranges per reservation.
  static constexpr std::size_t kRanges = 8;

  explicit AddressSpace(const driver::Device& device) : device_(device) {}

  ~AddressSpace();
  AddressSpace(const AddressSpace&) = delete;
  AddressSpace& operator=(const AddressSpace&) = delete;

  /// Queries the device's sizes and reserves the first piece. Errors: kDriver.
  Status open();

  /// The next range. Reserves another piece if none is left. Errors: kDriver.
  Result<Range> take();

  /// The piece that the latest range was taken from.
  [[nodiscard]] Range piece() const { return reserved_.back(); }

  /// The allocation properties of the chunks.
  [[nodiscard]] const CUmemAllocationProp& memory() const { return memory_; }

  [[nodiscard]] Bytes granularity() const { return granularity_; }

  [[nodiscard]] Bytes most_chunk() const { return most_chunk_; }

  [[nodiscard]] Bytes range_size() const { return range_size_; }

 private:
  Status reserve();

  const driver::Device device_;
  CUmemAllocationProp memory_{};
  Bytes granularity_;  // physical memory is allocated in multiples of this
  // largest chunk; chunks are released whole, so small ones strand little memory
  Bytes most_chunk_;
  Bytes range_size_;
  std::vector<Range> reserved_;
  Bytes given_;  // handed out of the latest reservation
};

}  // namespace spillway
