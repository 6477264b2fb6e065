// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "emulator/device/addresses.h"
#include "emulator/device/capacity.h"
#include "emulator/device/memory_file.h"
#include "emulator/device/range.h"
#include "emulator/device/ticket.h"

#include <cuda.h>

#include <sys/types.h>

#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <unordered_map>
#include <vector>

namespace spillway::emulator {

/// Address reservations, physical handles, and the mappings between them, with the driver's rules.
/// A handle is mapped whole (offset 0), and a mapping is unmapped whole. Host code faults on memory
/// before its access was set and after it was unmapped.
///
/// Threads: under the machine's lock.
/// Ownership: borrows `capacity` and `files`.
/// Errors: the codes that cuda.h documents; the object is then unchanged.
class VirtualMemory {
 public:
  VirtualMemory(Capacity& capacity, std::deque<MemoryFile>& files, bool poison);

  CUresult reserve(std::size_t bytes, std::size_t alignment, CUdeviceptr hint, CUdeviceptr* at);
  CUresult unreserve(CUdeviceptr at, std::size_t bytes);

  CUresult create(std::size_t bytes,
                  const CUmemAllocationProp& properties,
                  CUmemGenericAllocationHandle* handle);
  CUresult release(CUmemGenericAllocationHandle handle);
  CUresult retain(CUdeviceptr at, CUmemGenericAllocationHandle* handle);
  CUresult properties(CUmemGenericAllocationHandle handle, CUmemAllocationProp* properties) const;

  /// An open file for another process; the caller closes it. The memory then stays allocated until
  /// all processes that know it have ended.
  /// Errors: CUDA_ERROR_INVALID_VALUE if the handle type was not requested at creation.
  CUresult share(CUmemGenericAllocationHandle handle, CUmemAllocationHandleType type, int* file);
  /// A handle for memory that another process shared. Not charged here.
  /// Errors: CUDA_ERROR_INVALID_VALUE for a file that is not from `share`.
  CUresult import(int file, CUmemGenericAllocationHandle* handle);

  /// `first`: the earlier mapping of the memory, if it still exists; else `at`.
  CUresult map(CUdeviceptr at,
               std::size_t bytes,
               std::size_t offset,
               CUmemGenericAllocationHandle handle,
               std::uintptr_t* first);

  /// A mapping that has ended. `others`: the addresses at which its memory is still mapped, in the
  /// order of mapping. `was_first`: it was mapped before all of them.
  struct Unmapped {
    Range range;
    std::vector<std::uintptr_t> others;
    bool was_first;
  };

  /// `ended`: the mappings in the range.
  CUresult unmap(CUdeviceptr at, std::size_t bytes, std::vector<Unmapped>* ended);
  CUresult set_access(CUdeviceptr at,
                      std::size_t bytes,
                      const CUmemAccessDesc* access,
                      std::size_t count);
  CUresult access(CUdeviceptr at, int device, unsigned long long* flags) const;

  /// The device whose memory can be read (or written) at every byte of `range`.
  [[nodiscard]] std::optional<int> device_of(Range range, bool write) const;
  /// Whether `device` may read (or write) every byte of `range`; `granted` is then set to the
  /// mappings that contain it.
  bool allows(Range range, int device, bool write, Range* granted) const;
  [[nodiscard]] bool mapped(Range range) const;
  /// The mapping that contains `at`.
  [[nodiscard]] std::optional<Range> mapping_of(CUdeviceptr at) const;
  [[nodiscard]] bool overlaps(Range range) const;
  /// Number of mappings that begin in `range`.
  [[nodiscard]] std::size_t mappings_in(Range range) const;
  /// Bytes of a handle's memory; 0 if it is unknown.
  [[nodiscard]] std::size_t bytes_of(CUmemGenericAllocationHandle handle) const;

 private:
  struct Reservation {
    Range range;
  };

  struct Physical {
    CUmemAllocationProp properties;
    std::size_t bytes;
    std::optional<off_t> offset{};           // in the file, set by the first mapping
    bool shared = false;                     // another process may know it
    std::shared_ptr<File> foreign{};         // the file of its process
    int references = 1;                      // of the program: created, retained
    std::vector<std::uintptr_t> mappings{};  // their addresses, in the order of mapping
  };

  struct Mapping {
    Range range;
    CUmemGenericAllocationHandle handle;
    std::map<int, CUmemAccess_flags> access;  // by device
  };

  using Mappings = std::map<std::uintptr_t, Mapping>;

  /// The mappings that contain `range`, from the first one on, while `good(mapping)`; end() if one
  /// is missing.
  template <typename Good>
  std::optional<Range> covering(Range range, Good good) const;
  /// The first mapping if whole mappings tile `range`, else end().
  Mappings::iterator whole_mappings(Range range);
  /// Assigns its offset in the file. False if the machine refuses.
  bool place(Physical& physical, CUdeviceptr at);
  /// Number of mappings adjacent to `range`.
  [[nodiscard]] int neighbors(Range range) const;
  void drop_if_unused(CUmemGenericAllocationHandle handle);

  [[nodiscard]] int devices() const { return static_cast<int>(files_.size()); }

  MemoryFile& file_of(const Physical& physical) {
    return files_[static_cast<std::size_t>(physical.properties.location.id)];
  }

  Capacity& capacity_;
  std::deque<MemoryFile>& files_;
  const bool poison_;
  Addresses addresses_;
  std::map<std::uintptr_t, Reservation> reservations_;
  std::unordered_map<CUmemGenericAllocationHandle, Physical> physical_;
  Mappings mappings_;
  long runs_ = 0;  // runs of adjacent mappings
  std::map<std::pair<dev_t, ino_t>, std::weak_ptr<File>> foreign_;
  CUmemGenericAllocationHandle next_handle_ = 1;
};

}  // namespace spillway::emulator
