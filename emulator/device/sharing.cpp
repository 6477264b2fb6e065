// SPDX-License-Identifier: Apache-2.0
#include "emulator/device/sharing.h"

namespace spillway::emulator {

CUresult share(Machine& machine, CUdeviceptr at, Ticket* ticket) {
  const Allocations::Block* block = machine.allocations.find(at);
  if (block == nullptr || block->pool == nullptr || block->pooled || block->freeing) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  const auto issued = issue(machine.files[static_cast<std::size_t>(block->device)],
                            Ticket::Kind::kMemory,
                            block->range.begin,
                            block->asked);
  if (!issued) return CUDA_ERROR_OUT_OF_MEMORY;
  *ticket = *issued;
  return CUDA_SUCCESS;
}

CUresult open_shared(Machine& machine, int device, const Ticket& ticket, CUdeviceptr* at) {
  if (is_own(ticket)) return CUDA_ERROR_INVALID_CONTEXT;
  if (const auto again = machine.allocations.open_again(ticket)) {
    *at = *again;
    return CUDA_SUCCESS;
  }
  const auto file = open_file_of(ticket, Ticket::Kind::kMemory);
  const auto owner = device_of(ticket);
  if (!file || owner < 0 || ticket.bytes == 0) {
    return CUDA_ERROR_INVALID_HANDLE;
  }
  const CUresult result = machine.allocations.import(ticket, file->number(), at);
  // Enables peer access too, as the only flag that CUDA allows here requests.
  if (result == CUDA_SUCCESS && !machine.peers.may(device, owner))
    machine.peers.enable(device, owner);
  return result;
}

CUresult close_shared(Machine& machine, CUdeviceptr at) {
  Allocations::Block* block = machine.allocations.find(at);
  if (block == nullptr || block->pool != nullptr || block->freeing) return CUDA_ERROR_INVALID_VALUE;
  if (--block->opened > 0) return CUDA_SUCCESS;
  const Range range = block->range;
  block->freeing = true;  // the wait may release the lock
  host_syncs().add();
  machine.streams.synchronize_device(block->device);
  machine.allocations.forget_import(at);
  machine.ordering.forget(range);
  return machine.sticky.load();
}

}  // namespace spillway::emulator
