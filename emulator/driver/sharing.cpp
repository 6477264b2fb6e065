// SPDX-License-Identifier: Apache-2.0
#include "emulator/device/sharing.h"

#include "emulator/driver/functions.h"

#include <cstring>

namespace spillway::emulator::driver {
namespace {

template <typename Handle>
Ticket ticket_of(const Handle& handle) {
  static_assert(sizeof(Handle) >= sizeof(Ticket));
  Ticket ticket{};
  std::memcpy(&ticket, &handle, sizeof ticket);
  return ticket;
}

template <typename Handle>
void put(const Ticket& ticket, Handle* handle) {
  static_assert(sizeof(Handle) >= sizeof(Ticket));
  std::memset(handle, 0, sizeof *handle);
  std::memcpy(handle, &ticket, sizeof ticket);
}

}  // namespace

CUresult IpcGetMemHandle(CUipcMemHandle* handle, CUdeviceptr at) {
  return call<"cuIpcGetMemHandle">([&](Machine& machine) {
    if (handle == nullptr) return CUDA_ERROR_INVALID_VALUE;
    Ticket ticket{};
    const CUresult result = share(machine, at, &ticket);
    if (result == CUDA_SUCCESS) put(ticket, handle);
    return result;
  });
}

CUresult IpcOpenMemHandle(CUdeviceptr* at, CUipcMemHandle handle, unsigned flags) {
  return call_on_device<"cuIpcOpenMemHandle">([&](Machine& machine, int device) {
    if (at == nullptr || flags != CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    return open_shared(machine, device, ticket_of(handle), at);
  });
}

CUresult IpcCloseMemHandle(CUdeviceptr at) {
  return call<"cuIpcCloseMemHandle">([&](Machine& machine) { return close_shared(machine, at); });
}

CUresult IpcGetEventHandle(CUipcEventHandle* handle, CUevent event_handle) {
  return call<"cuIpcGetEventHandle">([&](Machine& machine) {
    if (handle == nullptr) return CUDA_ERROR_INVALID_VALUE;
    const Event* event = machine.streams.find(event_handle);
    if (event == nullptr || !event->interprocess) return CUDA_ERROR_INVALID_HANDLE;
    MemoryFile& file = machine.files[static_cast<std::size_t>(event->device)];
    const auto ticket =
        issue(file, Ticket::Kind::kEvent, reinterpret_cast<std::uintptr_t>(event), 0);
    if (!ticket) return CUDA_ERROR_OUT_OF_MEMORY;
    put(*ticket, handle);
    return CUDA_SUCCESS;
  });
}

// A record of such an event runs its stream up to it, so all work that another process can observe
// is complete. The event is therefore opened as one that was never recorded, for which no wait is
// needed.
CUresult IpcOpenEventHandle(CUevent* event, CUipcEventHandle handle) {
  return call_on_device<"cuIpcOpenEventHandle">([&](Machine& machine, int /*device*/) {
    if (event == nullptr) return CUDA_ERROR_INVALID_VALUE;
    const Ticket ticket = ticket_of(handle);
    if (is_own(ticket)) return CUDA_ERROR_INVALID_CONTEXT;
    const auto device = emulator::device_of(ticket);
    if (!open_file_of(ticket, Ticket::Kind::kEvent) || device < 0) {
      return CUDA_ERROR_INVALID_HANDLE;
    }
    Event* opened = machine.streams.create_event(device, false);
    opened->interprocess = true;
    *event = reinterpret_cast<CUevent>(opened);
    return CUDA_SUCCESS;
  });
}

CUresult MemExportToShareableHandle(void* shareable,
                                    CUmemGenericAllocationHandle handle,
                                    CUmemAllocationHandleType type,
                                    unsigned long long flags) {
  return call<"cuMemExportToShareableHandle">([&](Machine& machine) {
    if (shareable == nullptr || flags != 0) return CUDA_ERROR_INVALID_VALUE;
    int file = -1;
    const CUresult result = machine.virtual_memory.share(handle, type, &file);
    if (result == CUDA_SUCCESS) std::memcpy(shareable, &file, sizeof file);
    return result;
  });
}

CUresult MemImportFromShareableHandle(CUmemGenericAllocationHandle* handle,
                                      void* shareable,
                                      CUmemAllocationHandleType type) {
  return call<"cuMemImportFromShareableHandle">([&](Machine& machine) {
    if (handle == nullptr) return CUDA_ERROR_INVALID_VALUE;
    if (type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) return CUDA_ERROR_NOT_SUPPORTED;
    const auto file = static_cast<int>(reinterpret_cast<std::intptr_t>(shareable));
    return machine.virtual_memory.import(file, handle);
  });
}

}  // namespace spillway::emulator::driver
