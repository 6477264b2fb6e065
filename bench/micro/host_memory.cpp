// SPDX-License-Identifier: Apache-2.0
#include "bench/micro/host_memory.h"

#include <sys/mman.h>

#include <algorithm>

namespace spillway::micro {

Result<std::unique_ptr<HostMemory>> HostMemory::make(Probe& probe, HostKind kind, Bytes size) {
  std::unique_ptr<HostMemory> made(new HostMemory(probe, kind, size));
  if (kind == HostKind::kArena) {
    made->arena_ = std::make_unique<HostArena>(probe.device(), Bytes{});
    SPILLWAY_ASSIGN_OR_RETURN(made->slot_, made->arena_->take(size));
    made->data_ = made->slot_.data();
    return made;
  }
  void* data = nullptr;
  if (kind == HostKind::kPinned) {
    SPILLWAY_RETURN_IF_ERROR(
        SPILLWAY_CALL_EXTRA(probe, MemHostAlloc, &data, size.count(), CU_MEMHOSTALLOC_PORTABLE));
  } else {
    data = mmap(nullptr, size.count(), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (data == MAP_FAILED)
      return SPILLWAY_ERROR(Code::kOutOfHostMemory, "mmap of a pageable buffer failed");
  }
  made->data_ = static_cast<std::byte*>(data);
  // Pinned memory has its pages from the beginning.
  if (kind == HostKind::kPageable) std::fill_n(made->data_, size.count(), std::byte{1});
  return made;
}

HostMemory::~HostMemory() {
  if (data_ == nullptr) return;
  switch (kind_) {
    case HostKind::kArena:
      break;  // its slot and its arena end by themselves
    case HostKind::kPinned:
      probe_.extra().MemFreeHost(data_);
      break;
    case HostKind::kPageable:
      munmap(data_, size_.count());
      break;
  }
}

}  // namespace spillway::micro
