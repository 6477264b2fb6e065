// SPDX-License-Identifier: Apache-2.0
#include "emulator/device/freeing.h"

#include <utility>
#include <vector>

namespace spillway::emulator {

CUresult free_and_wait(Machine& machine, CUdeviceptr at) {
  Allocations::Block* block = machine.allocations.find(at);
  if (block == nullptr || block->pool == nullptr || block->freeing) return CUDA_ERROR_INVALID_VALUE;
  const Range range = block->range;
  block->freeing = true;  // the wait may release the lock
  const int device = block->device;
  const bool pooled = block->pooled;
  host_syncs().add();
  machine.streams.synchronize_device(device);
  const std::size_t before = machine.capacity.used(device);
  machine.allocations.free(at);
  const std::size_t released = before - machine.capacity.used(device);
  if (released > 0 && !pooled) {
    machine.clock.host_unmaps(1);
    machine.clock.host_releases(released);
  }
  machine.ordering.forget(range);
  return machine.sticky.load();
}

CUresult free_in_order(Machine& machine, Stream& stream, CUdeviceptr at, const char* operation) {
  Allocations::Block* block = machine.allocations.find(at);
  if (block == nullptr || block->pool == nullptr || block->freeing) return CUDA_ERROR_INVALID_VALUE;
  const Range range = block->range;
  block->freeing = true;
  Operation freeing;
  freeing.accesses = {{range, true, operation}};
  freeing.work = [&machine, at, range] {
    machine.allocations.free(at);
    machine.ordering.forget(range);
  };
  machine.streams.submit(stream, std::move(freeing));
  return machine.sticky.load();
}

CUresult free_host_and_wait(Machine& machine, void* at) {
  const auto range = Range::of(at, 1);
  if (!range || !machine.host.holds(*range)) return CUDA_ERROR_INVALID_VALUE;
  host_syncs().add();
  for (int device = 0; device < machine.settings.devices; ++device) {
    machine.streams.synchronize_device(device);
  }
  Range freed;
  const CUresult result = machine.host.free(at, &freed);
  if (result != CUDA_SUCCESS) return result;
  machine.ordering.forget(freed);
  return machine.sticky.load();
}

CUresult register_host(Machine& machine, void* at, std::size_t bytes) {
  const auto range = Range::of(at, bytes);
  if (!range || at == nullptr || bytes == 0) return CUDA_ERROR_INVALID_VALUE;
  if (machine.allocations.overlaps(*range) || machine.virtual_memory.overlaps(*range)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  const CUresult result = machine.host.add(*range);
  if (result != CUDA_SUCCESS) return result;
  host_registrations().add();
  machine.ordering.forget(*range);
  return CUDA_SUCCESS;
}

CUresult unregister_host(Machine& machine, void* at, const char* operation) {
  Range range;
  const CUresult result = machine.host.remove(at, &range);
  if (result != CUDA_SUCCESS) return result;
  machine.ordering.host_access(range, true, operation);
  machine.ordering.forget(range);
  return CUDA_SUCCESS;
}

CUresult unmap(Machine& machine, CUdeviceptr at, std::size_t bytes) {
  std::vector<VirtualMemory::Unmapped> ended;
  const CUresult result = machine.virtual_memory.unmap(at, bytes, &ended);
  if (result != CUDA_SUCCESS) return result;
  for (const auto& [range, others, was_first] : ended) {
    if (!was_first) {
      machine.ordering.end_view(range);
    } else if (!others.empty()) {
      machine.ordering.end_original(range, others);
    } else {
      machine.ordering.host_access(range, true, "cuMemUnmap");
      machine.ordering.forget(range);
    }
  }
  return CUDA_SUCCESS;
}

}  // namespace spillway::emulator
