// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "allocator/base/result.h"
#include "allocator/driver/fence_set.h"
#include "allocator/driver/handles.h"
#include "allocator/heap/range.h"

#include <cstdint>
#include <map>
#include <span>

namespace spillway {

/// Addresses at which chunks are still mapped although their memory has moved to other addresses.
/// CUDA calls two mappings of one memory virtual aliasing. An address may be unmapped only after
/// the device has finished with it. A former mapping ends later, so that memory moves in stream
/// order, without a host wait.
///
/// Threads: callers hold the heap's lock.
/// Ownership: owns the mappings, not the chunks. At destruction the device must have finished all
/// work on them.
class FormerMappings {
 public:
  struct Mapping {
    Bytes size;
    CUmemGenericAllocationHandle chunk;
    driver::FenceSet uses;  // the last ones of the memory at that address
  };

  explicit FormerMappings(const driver::Device& device) : device_(device) {}

  ~FormerMappings();
  FormerMappings(const FormerMappings&) = delete;
  FormerMappings& operator=(const FormerMappings&) = delete;

  /// Requires: the chunk is mapped there, and the heap's blocks are no longer.
  void add(driver::DevicePtr at, const Mapping& mapping);

  /// Unmaps those that overlap `where`.
  /// Stream: blocks the host until their uses have passed.
  /// Errors: kDriver; what the driver refuses to unmap stays.
  Status clear(Range where);

  /// Unmaps those of a chunk, whose memory is about to be released. Stream and errors: as clear.
  Status clear(CUmemGenericAllocationHandle chunk);

  /// Whether the device may still use one that overlaps `where`, or one of a chunk. No wait.
  [[nodiscard]] bool in_use(Range where) const;
  [[nodiscard]] bool in_use(CUmemGenericAllocationHandle chunk) const;

  /// From now on, in_use() asks the driver again for fences that had not passed.
  void look_again() { not_passed_.clear(); }

  /// Unmaps the oldest ones, up to the first that the device may still use. No host wait.
  void clear_passed();

  /// Grants the devices in `access` access to the memory. Errors: kDriver.
  [[nodiscard]] Status allow(std::span<const CUmemAccessDesc> access) const;

 private:
  struct Numbered {
    Mapping mapping;
    std::uint64_t number;
  };

  using Mappings = std::map<driver::DevicePtr, Numbered>;

  [[nodiscard]] Mappings::const_iterator first_in(Range where) const;
  Status unmap(Mappings::const_iterator mapping);
  [[nodiscard]] bool in_use(const Mapping& mapping) const;

  const driver::Device device_;
  Mappings mappings_;
  std::map<std::uint64_t, driver::DevicePtr> by_age_;
  std::multimap<CUmemGenericAllocationHandle, driver::DevicePtr> by_chunk_;
  std::uint64_t next_ = 0;
  // By timeline, the earliest fence that is known not to have passed: each query is a driver call.
  mutable std::map<const driver::Timeline*, std::uint64_t> not_passed_;
};

}  // namespace spillway
