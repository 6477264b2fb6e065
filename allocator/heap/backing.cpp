// SPDX-License-Identifier: Apache-2.0
#include "allocator/heap/backing.h"

#include <algorithm>
#include <iterator>

namespace spillway {

Backing::Backing(const driver::Device& device, Range range, Bytes granularity, Bytes most)
    : device_(device),
      range_(range),
      granularity_(granularity),
      most_(most),
      gaps_{{range.begin, range.size}} {}

Backing::~Backing() {
  const driver::CurrentDevice current(*device_.api, device_.context);
  for (const auto& [at, chunk] : chunks_) {
    device_.api->MemUnmap(at.address(), chunk.size.count());
    device_.api->MemRelease(chunk.handle);
  }
}

CUmemAllocationProp Backing::memory_of(const driver::Device& device) {
  CUmemAllocationProp memory{};
  memory.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  memory.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  memory.location.id = static_cast<int>(device.id);
  return memory;
}

Result<std::uint64_t> Backing::map(Range where) {
  const driver::Api& api = *device_.api;
  const driver::CurrentDevice current(api, device_.context);
  const CUmemAccessDesc access{memory_of(device_).location, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};

  std::map<driver::DevicePtr, Chunk> made;
  Status status = make_chunks(where, made);
  if (status.ok()) {
    const CUdeviceptr at = where.begin.address();
    status = SPILLWAY_CALL(api, MemSetAccess, at, where.size.count(), &access, 1);
  }
  if (!status.ok()) {
    for (const auto& [at, chunk] : made) {
      if (api.MemUnmap(at.address(), chunk.size.count()) != CUDA_SUCCESS) {
        close_gap({at, chunk.size});
        stuck_ += chunk.size;
      }
      api.MemRelease(chunk.handle);
    }
    return status;
  }

  // Nothing below may fail.
  close_gap(where);
  const std::uint64_t count = made.size();
  chunks_.merge(made);
  return count;
}

Status Backing::make_chunks(Range where, std::map<driver::DevicePtr, Chunk>& made) {
  const driver::Api& api = *device_.api;
  const CUmemAllocationProp memory = memory_of(device_);
  for (driver::DevicePtr at = where.begin; at < where.end();) {
    Chunk chunk{std::min(most_, distance(at, where.end())), 0};
    const std::size_t size = chunk.size.count();
    SPILLWAY_RETURN_IF_ERROR(SPILLWAY_CALL(api, MemCreate, &chunk.handle, size, &memory, 0));
    driver::count_allocation();
    if (Status status = SPILLWAY_CALL(api, MemMap, at.address(), size, 0, chunk.handle, 0);
        !status.ok()) {
      api.MemRelease(chunk.handle);
      return status;
    }
    made.emplace(at, chunk);
    at = at + chunk.size;
  }
  return {};
}

bool Backing::unmap(driver::DevicePtr at) {
  const auto chunk = chunks_.find(at);
  SPILLWAY_CHECK(chunk != chunks_.end());
  const driver::CurrentDevice current(*device_.api, device_.context);
  const Bytes size = chunk->second.size;
  if (device_.api->MemUnmap(at.address(), size.count()) != CUDA_SUCCESS) return false;
  device_.api->MemRelease(chunk->second.handle);
  chunks_.erase(chunk);
  open_gap({at, size});
  return true;
}

void Backing::close_gap(Range where) {
  const auto gap = std::prev(gaps_.upper_bound(where.begin));
  const Range old{gap->first, gap->second};
  SPILLWAY_CHECK(old.contains(where));
  gaps_.erase(gap);
  if (old.begin < where.begin) gaps_.emplace(old.begin, distance(old.begin, where.begin));
  if (where.end() < old.end()) gaps_.emplace(where.end(), distance(where.end(), old.end()));
}

void Backing::open_gap(Range where) {
  const auto after = gaps_.find(where.end());
  if (after != gaps_.end()) {
    where.size += after->second;
    gaps_.erase(after);
  }
  const auto next = gaps_.lower_bound(where.begin);
  if (next != gaps_.begin() && std::prev(next)->first + std::prev(next)->second == where.begin) {
    std::prev(next)->second += where.size;
  } else {
    gaps_.emplace(where.begin, where.size);
  }
}

}  // namespace spillway
