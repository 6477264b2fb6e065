// SPDX-License-Identifier: Apache-2.0
#include "emulator/device/virtual_memory.h"

#include "emulator/device/views.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <algorithm>
#include <bit>
#include <iterator>

namespace spillway::emulator {
namespace {

constexpr std::size_t kPage = 4096;
constexpr std::size_t kAddressStep = 64ULL << 30U;

bool aligned(std::size_t value) {
  return value % kGranularity == 0;
}

int protection(const std::map<int, CUmemAccess_flags>& access) {
  int result = PROT_NONE;
  for (const auto& [device, flags] : access) {
    if (flags == CU_MEM_ACCESS_FLAGS_PROT_READ) result |= PROT_READ;
    if (flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE) result |= PROT_READ | PROT_WRITE;
  }
  return result;
}

}  // namespace

VirtualMemory::VirtualMemory(Capacity& capacity, std::deque<MemoryFile>& files, bool poison)
    : capacity_(capacity), files_(files), poison_(poison), addresses_(kAddressStep) {}

CUresult VirtualMemory::reserve(std::size_t bytes,
                                std::size_t alignment,
                                CUdeviceptr hint,
                                CUdeviceptr* at) {
  if (bytes == 0 || bytes % kPage != 0 || hint % kPage != 0) return CUDA_ERROR_INVALID_VALUE;
  if (alignment != 0 && !std::has_single_bit(alignment)) return CUDA_ERROR_INVALID_VALUE;
  const auto rounded = round_up(bytes, kGranularity);
  if (!rounded) return CUDA_ERROR_OUT_OF_MEMORY;
  auto taken = hint == 0 || !aligned(hint) ? std::nullopt : Range::of(hint, *rounded);
  if (!taken || !addresses_.take(*taken)) taken = addresses_.take(bytes, alignment);
  if (!taken) return CUDA_ERROR_OUT_OF_MEMORY;
  reservations_.emplace(taken->begin, Reservation{{taken->begin, taken->begin + bytes}});
  *at = taken->begin;
  return CUDA_SUCCESS;
}

CUresult VirtualMemory::unreserve(CUdeviceptr at, std::size_t bytes) {
  const auto found = reservations_.find(at);
  if (found == reservations_.end()) return CUDA_ERROR_INVALID_VALUE;
  const Range range = found->second.range;
  if (range.bytes() != bytes || first_overlap(mappings_, range) != mappings_.end()) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  reservations_.erase(found);
  addresses_.give(range);
  return CUDA_SUCCESS;
}

CUresult VirtualMemory::create(std::size_t bytes,
                               const CUmemAllocationProp& properties,
                               CUmemGenericAllocationHandle* handle) {
  if (bytes == 0 || !aligned(bytes)) return CUDA_ERROR_INVALID_VALUE;
  if (properties.type != CU_MEM_ALLOCATION_TYPE_PINNED) return CUDA_ERROR_INVALID_VALUE;
  if (properties.location.type == CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (properties.location.type != CU_MEM_LOCATION_TYPE_DEVICE) return CUDA_ERROR_NOT_SUPPORTED;
  if ((properties.requestedHandleTypes & ~CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) != 0) {
    return CUDA_ERROR_NOT_SUPPORTED;
  }
  const int device = properties.location.id;
  if (device < 0 || device >= devices()) return CUDA_ERROR_INVALID_DEVICE;
  if (!capacity_.take(device, bytes)) return CUDA_ERROR_OUT_OF_MEMORY;
  *handle = next_handle_++;
  physical_.emplace(*handle, Physical{properties, bytes});
  return CUDA_SUCCESS;
}

CUresult VirtualMemory::release(CUmemGenericAllocationHandle handle) {
  const auto found = physical_.find(handle);
  if (found == physical_.end() || found->second.references == 0) return CUDA_ERROR_INVALID_VALUE;
  --found->second.references;
  drop_if_unused(handle);
  return CUDA_SUCCESS;
}

CUresult VirtualMemory::retain(CUdeviceptr at, CUmemGenericAllocationHandle* handle) {
  const auto found = first_overlap(mappings_, Range{at, at + 1});
  if (found == mappings_.end()) return CUDA_ERROR_INVALID_VALUE;
  *handle = found->second.handle;
  ++physical_.at(*handle).references;
  return CUDA_SUCCESS;
}

CUresult VirtualMemory::properties(CUmemGenericAllocationHandle handle,
                                   CUmemAllocationProp* properties) const {
  const auto found = physical_.find(handle);
  if (found == physical_.end()) return CUDA_ERROR_INVALID_VALUE;
  *properties = found->second.properties;
  return CUDA_SUCCESS;
}

CUresult VirtualMemory::share(CUmemGenericAllocationHandle handle,
                              CUmemAllocationHandleType type,
                              int* file) {
  const auto found = physical_.find(handle);
  if (found == physical_.end() || found->second.references == 0) return CUDA_ERROR_INVALID_VALUE;
  Physical& physical = found->second;
  const bool requested = type == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR &&
                         physical.properties.requestedHandleTypes == type;
  if (!requested || physical.foreign) return CUDA_ERROR_INVALID_VALUE;
  if (!place(physical, 0)) return CUDA_ERROR_OUT_OF_MEMORY;
  const auto ticket = issue(file_of(physical),
                            Ticket::Kind::kMapped,
                            static_cast<std::uint64_t>(*physical.offset),
                            physical.bytes);
  auto opened = ticket ? leave_in_file(file_of(physical), *ticket) : std::nullopt;
  if (!opened) return CUDA_ERROR_OUT_OF_MEMORY;
  physical.shared = true;
  *file = opened->release();
  return CUDA_SUCCESS;
}

CUresult VirtualMemory::import(int file, CUmemGenericAllocationHandle* handle) {
  const auto ticket = ticket_in(file);

  struct stat status {};

  if (!ticket || emulator::device_of(*ticket) < 0 || fstat(file, &status) != 0) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  // One open file for all memory of a process, however much of it is imported.
  std::weak_ptr<File>& known = foreign_[{status.st_dev, status.st_ino}];
  std::shared_ptr<File> foreign = known.lock();
  if (foreign == nullptr) {
    foreign = std::make_shared<File>(fcntl(file, F_DUPFD_CLOEXEC, 0));
    if (foreign->number() < 0) return CUDA_ERROR_OUT_OF_MEMORY;
    known = foreign;
  }
  CUmemAllocationProp properties{};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, emulator::device_of(*ticket)};
  *handle = next_handle_++;
  Physical& physical =
      physical_.emplace(*handle, Physical{properties, ticket->bytes}).first->second;
  physical.offset = static_cast<off_t>(ticket->offset);
  physical.foreign = std::move(foreign);
  return CUDA_SUCCESS;
}

CUresult VirtualMemory::map(CUdeviceptr at,
                            std::size_t bytes,
                            std::size_t offset,
                            CUmemGenericAllocationHandle handle,
                            std::uintptr_t* first) {
  if (bytes == 0 || !aligned(at) || !aligned(bytes) || !aligned(offset)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (offset != 0) return CUDA_ERROR_NOT_SUPPORTED;
  const auto physical = physical_.find(handle);
  if (physical == physical_.end() || physical->second.references == 0) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  const auto range = Range::of(at, bytes);
  if (!range || bytes > physical->second.bytes) return CUDA_ERROR_INVALID_VALUE;
  const auto reservation = first_overlap(reservations_, *range);
  if (reservation == reservations_.end() || !reservation->second.range.contains(*range)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (first_overlap(mappings_, *range) != mappings_.end()) return CUDA_ERROR_INVALID_VALUE;
  if (!place(physical->second, at)) return CUDA_ERROR_OUT_OF_MEMORY;
  const int file = physical->second.foreign ? physical->second.foreign->number()
                                            : file_of(physical->second).descriptor();
  if (!MemoryFile::map(file, *range, *physical->second.offset, PROT_NONE)) {
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  physical->second.mappings.push_back(at);
  *first = physical->second.mappings.front();
  runs_ += 1 - neighbors(*range);
  mappings_.emplace(at, Mapping{*range, handle, {}});
  return CUDA_SUCCESS;
}

bool VirtualMemory::place(Physical& physical, CUdeviceptr at) {
  if (physical.offset) return true;
  MemoryFile& file = file_of(physical);
  physical.offset = file.place(at, physical.bytes);
  if (!physical.offset) return false;
  return !poison_ || file.fill(*physical.offset, physical.bytes, kPoison);
}

int VirtualMemory::neighbors(Range range) const {
  const auto next = mappings_.lower_bound(range.end);
  const auto before = mappings_.lower_bound(range.begin);
  const bool right = next != mappings_.end() && next->first == range.end;
  const bool left =
      before != mappings_.begin() && std::prev(before)->second.range.end == range.begin;
  return (left ? 1 : 0) + (right ? 1 : 0);
}

VirtualMemory::Mappings::iterator VirtualMemory::whole_mappings(Range range) {
  const auto first = mappings_.find(range.begin);
  std::uintptr_t covered = range.begin;
  for (auto each = first; each != mappings_.end() && covered < range.end; ++each) {
    if (each->second.range.begin != covered) break;
    covered = each->second.range.end;
  }
  return covered == range.end && range.bytes() > 0 ? first : mappings_.end();
}

CUresult VirtualMemory::unmap(CUdeviceptr at, std::size_t bytes, std::vector<Unmapped>* ended) {
  const auto range = Range::of(at, bytes);
  if (!range) return CUDA_ERROR_INVALID_VALUE;
  auto each = whole_mappings(*range);
  if (each == mappings_.end()) return CUDA_ERROR_INVALID_VALUE;
  // Beyond that, the machine would soon refuse the process any mapping. The bytes then stay
  // accessible to the host, and only the rules forbid their use.
  runs_ += neighbors(*range) - 1;
  if (runs_ < static_cast<long>(most_pieces())) make_inaccessible(*range);
  bump_mapping_generation();
  while (each != mappings_.end() && each->first < range->end) {
    const CUmemGenericAllocationHandle handle = each->second.handle;
    std::vector<std::uintptr_t>& of_memory = physical_.at(handle).mappings;
    const bool was_first = of_memory.front() == each->first;
    std::erase(of_memory, each->first);
    ended->push_back({each->second.range, of_memory, was_first});
    each = mappings_.erase(each);
    drop_if_unused(handle);
  }
  return CUDA_SUCCESS;
}

CUresult VirtualMemory::set_access(CUdeviceptr at,
                                   std::size_t bytes,
                                   const CUmemAccessDesc* access,
                                   std::size_t count) {
  const auto range = Range::of(at, bytes);
  if (!range || access == nullptr || count == 0) return CUDA_ERROR_INVALID_VALUE;
  for (std::size_t i = 0; i < count; ++i) {
    if (access[i].location.type != CU_MEM_LOCATION_TYPE_DEVICE) return CUDA_ERROR_NOT_SUPPORTED;
    if (access[i].location.id < 0 || access[i].location.id >= devices()) {
      return CUDA_ERROR_INVALID_DEVICE;
    }
    if (access[i].flags != CU_MEM_ACCESS_FLAGS_PROT_NONE &&
        access[i].flags != CU_MEM_ACCESS_FLAGS_PROT_READ &&
        access[i].flags != CU_MEM_ACCESS_FLAGS_PROT_READWRITE) {
      return CUDA_ERROR_INVALID_VALUE;
    }
  }
  auto each = whole_mappings(*range);
  if (each == mappings_.end()) return CUDA_ERROR_INVALID_VALUE;
  bump_mapping_generation();
  for (; each != mappings_.end() && each->first < range->end; ++each) {
    auto allowed = each->second.access;
    for (std::size_t i = 0; i < count; ++i)
      allowed[access[i].location.id] = access[i].flags;
    const Range part = each->second.range;
    if (mprotect(part.at(), part.bytes(), protection(allowed)) != 0)
      return CUDA_ERROR_OUT_OF_MEMORY;
    each->second.access = std::move(allowed);
  }
  return CUDA_SUCCESS;
}

CUresult VirtualMemory::access(CUdeviceptr at, int device, unsigned long long* flags) const {
  const auto found = first_overlap(mappings_, Range{at, at + 1});
  if (found == mappings_.end()) return CUDA_ERROR_INVALID_VALUE;
  const auto entry = found->second.access.find(device);
  *flags = entry == found->second.access.end() ? CU_MEM_ACCESS_FLAGS_PROT_NONE : entry->second;
  return CUDA_SUCCESS;
}

template <typename Good>
std::optional<Range> VirtualMemory::covering(Range range, Good good) const {
  auto each = first_overlap(mappings_, range);
  if (each == mappings_.end()) return std::nullopt;
  const std::uintptr_t begin = each->second.range.begin;
  std::uintptr_t covered = std::min(begin, range.begin);
  for (; each != mappings_.end() && covered < range.end; ++each) {
    const Mapping& mapping = each->second;
    if (mapping.range.begin > std::max(covered, range.begin) || !good(mapping)) break;
    covered = mapping.range.end;
  }
  return covered >= range.end ? std::optional<Range>({begin, covered}) : std::nullopt;
}

std::optional<int> VirtualMemory::device_of(Range range, bool write) const {
  const int needed = write ? PROT_WRITE : PROT_READ;
  const auto found = covering(
      range, [&](const Mapping& mapping) { return (protection(mapping.access) & needed) != 0; });
  if (!found) return std::nullopt;
  return physical_.at(mappings_.at(found->begin).handle).properties.location.id;
}

bool VirtualMemory::allows(Range range, int device, bool write, Range* granted) const {
  const auto found = covering(range, [&](const Mapping& mapping) {
    const auto entry = mapping.access.find(device);
    if (entry == mapping.access.end()) return false;
    return entry->second == CU_MEM_ACCESS_FLAGS_PROT_READWRITE ||
           (entry->second == CU_MEM_ACCESS_FLAGS_PROT_READ && !write);
  });
  if (found) *granted = *found;
  return found.has_value();
}

bool VirtualMemory::mapped(Range range) const {
  return covering(range, [](const Mapping&) { return true; }).has_value();
}

std::optional<Range> VirtualMemory::mapping_of(CUdeviceptr at) const {
  const auto found = first_overlap(mappings_, Range{at, at + 1});
  return found == mappings_.end() ? std::nullopt : std::optional<Range>(found->second.range);
}

bool VirtualMemory::overlaps(Range range) const {
  return first_overlap(reservations_, range) != reservations_.end();
}

std::size_t VirtualMemory::mappings_in(Range range) const {
  if (range.end <= range.begin) return 0;
  const auto count =
      std::distance(mappings_.lower_bound(range.begin), mappings_.lower_bound(range.end));
  return static_cast<std::size_t>(count);
}

std::size_t VirtualMemory::bytes_of(CUmemGenericAllocationHandle handle) const {
  const auto found = physical_.find(handle);
  return found == physical_.end() ? 0 : found->second.bytes;
}

void VirtualMemory::drop_if_unused(CUmemGenericAllocationHandle handle) {
  const auto found = physical_.find(handle);
  const Physical& physical = found->second;
  if (physical.references > 0 || !physical.mappings.empty()) return;
  if (!physical.foreign) capacity_.give(physical.properties.location.id, physical.bytes);
  const bool ours = physical.offset && !physical.shared && !physical.foreign;
  if (ours) file_of(physical).drop(*physical.offset, physical.bytes);
  physical_.erase(found);
}

}  // namespace spillway::emulator
