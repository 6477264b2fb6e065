// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "emulator/device/capacity.h"
#include "emulator/device/range.h"

#include <cuda.h>

#include <sys/types.h>

#include <map>
#include <optional>
#include <unordered_map>

namespace spillway::emulator {

inline constexpr std::size_t kGranularity = 2U << 20U;

/// Address reservations, physical handles, and the mappings between them, with the driver's rules:
/// a handle is the smallest thing that can be mapped (offset 0), a mapping is unmapped as a whole,
/// and nothing can be touched before access was set nor after it was unmapped: host code faults.
///
/// Threads: under the machine's lock. Ownership: borrows `capacity`.
/// Errors: the codes that cuda.h documents; the object is then as it was.
class VirtualMemory {
 public:
  VirtualMemory(Capacity& capacity, int devices) : capacity_(capacity), devices_(devices) {}

  CUresult reserve(std::size_t bytes, std::size_t alignment, CUdeviceptr hint, CUdeviceptr* at);
  CUresult unreserve(CUdeviceptr at, std::size_t bytes);

  CUresult create(std::size_t bytes,
                  const CUmemAllocationProp& properties,
                  CUmemGenericAllocationHandle* handle);
  CUresult release(CUmemGenericAllocationHandle handle);
  CUresult retain(CUdeviceptr at, CUmemGenericAllocationHandle* handle);
  CUresult properties(CUmemGenericAllocationHandle handle, CUmemAllocationProp* properties) const;

  CUresult map(CUdeviceptr at,
               std::size_t bytes,
               std::size_t offset,
               CUmemGenericAllocationHandle handle);
  CUresult unmap(CUdeviceptr at, std::size_t bytes);
  CUresult set_access(CUdeviceptr at,
                      std::size_t bytes,
                      const CUmemAccessDesc* access,
                      std::size_t count);
  CUresult access(CUdeviceptr at, int device, unsigned long long* flags) const;

  /// The device whose memory can be read (or written) at every byte of `range`.
  [[nodiscard]] std::optional<int> device_of(Range range, bool write) const;
  /// Whether `device` may read (or write) every byte of `range`; `granted` is then the mappings
  /// that hold it.
  bool allows(Range range, int device, bool write, Range* granted) const;
  [[nodiscard]] bool mapped(Range range) const;
  /// The mapping that holds `at`.
  [[nodiscard]] std::optional<Range> mapping_of(CUdeviceptr at) const;
  [[nodiscard]] bool overlaps(Range range) const;

 private:
  struct Reservation {
    Range range;
  };

  struct Physical {
    CUmemAllocationProp properties;
    std::size_t bytes;
    off_t offset;        // in the file
    int references = 1;  // of the program: created, retained
    int mappings = 0;
  };

  struct Mapping {
    Range range;
    CUmemGenericAllocationHandle handle;
    std::map<int, CUmemAccess_flags> access;  // by device
  };

  using Mappings = std::map<std::uintptr_t, Mapping>;

  /// The mappings that hold `range`, from the first one on, while `good(mapping)`; nothing where
  /// one is missing.
  template <typename Good>
  std::optional<Range> covering(Range range, Good good) const;
  /// The first mapping where `range` is tiled by whole mappings, end() otherwise.
  Mappings::iterator whole_mappings(Range range);
  bool extend_file(std::size_t bytes);
  void drop_if_unused(CUmemGenericAllocationHandle handle);

  Capacity& capacity_;
  const int devices_;
  std::map<std::uintptr_t, Reservation> reservations_;
  std::unordered_map<CUmemGenericAllocationHandle, Physical> physical_;
  Mappings mappings_;
  CUmemGenericAllocationHandle next_handle_ = 1;
  // One sparse file for all handles: a file each would meet the limit on open files.
  int file_ = -1;
  off_t file_end_ = 0;
};

}  // namespace spillway::emulator
