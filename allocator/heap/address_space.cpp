// SPDX-License-Identifier: Apache-2.0
#include "allocator/heap/address_space.h"

#include <algorithm>
#include <bit>
#include <cstddef>

namespace spillway {
namespace {

/// The approximate number of chunks of a device's memory. Mapping costs time per chunk, once; but a
/// chunk with one small block left strands the rest of its memory.
constexpr std::size_t kChunks = 16384;

}  // namespace

AddressSpace::~AddressSpace() {
  const driver::CurrentDevice current(*device_.api, device_.context);
  for (const Range& range : reserved_) {
    device_.api->MemAddressFree(range.begin.address(), range.size.count());
  }
}

Status AddressSpace::open() {
  const driver::CurrentDevice current(*device_.api, device_.context);
  std::size_t granularity = 0;
  int as_files = 0;
  SPILLWAY_RETURN_IF_ERROR(
      SPILLWAY_CALL(*device_.api,
                    DeviceGetAttribute,
                    &as_files,
                    CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED,
                    static_cast<CUdevice>(device_.id)));
  memory_.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  memory_.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  memory_.location.id = static_cast<int>(device_.id);
  // Memory can be exported to other processes only if it was created for that.
  if (as_files != 0) memory_.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  SPILLWAY_ASSIGN_OR_RETURN(const driver::MemoryInfo memory, driver::memory_info(device_));
  SPILLWAY_RETURN_IF_ERROR(SPILLWAY_CALL(*device_.api,
                                         MemGetAllocationGranularity,
                                         &granularity,
                                         &memory_,
                                         CU_MEM_ALLOC_GRANULARITY_MINIMUM));
  granularity_ = Bytes{granularity};
  most_chunk_ = Bytes{memory.total.count() / kChunks}.rounded_down(granularity_);
  most_chunk_ = std::max(most_chunk_, granularity_);
  range_size_ =
      Bytes{std::bit_ceil((memory.total + memory.total).rounded_up(granularity_).count())};
  return reserve();
}

Result<Range> AddressSpace::take() {
  if (given_ == reserved_.back().size) SPILLWAY_RETURN_IF_ERROR(reserve());
  const Range range{reserved_.back().begin + given_, range_size_};
  given_ += range_size_;
  return range;
}

Status AddressSpace::reserve() {
  const Bytes size{range_size_.count() * kRanges};
  SPILLWAY_ASSIGN_OR_RETURN(const driver::DevicePtr begin,
                            driver::reserve_addresses(device_, size));
  reserved_.push_back({begin, size});
  given_ = Bytes{};
  return {};
}

}  // namespace spillway
