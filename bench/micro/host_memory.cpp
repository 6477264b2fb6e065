// SPDX-License-Identifier: Apache-2.0
#include "bench/micro/host_memory.h"

#include <sys/mman.h>

#include <algorithm>
#include <thread>
#include <vector>

namespace spillway::micro {
namespace {

void touch(std::byte* data, Bytes size) {
  const std::size_t threads = std::max(1U, std::thread::hardware_concurrency());
  const std::size_t share = size.count() / threads;
  std::vector<std::thread> workers;
  for (std::size_t i = 0; i < threads; ++i) {
    const std::size_t end = i + 1 == threads ? size.count() : (i + 1) * share;
    workers.emplace_back([=] {
      for (std::size_t at = i * share; at < end; at += 4096)
        data[at] = std::byte{1};
    });
  }
  for (std::thread& worker : workers)
    worker.join();
}

}  // namespace

Result<std::unique_ptr<HostMemory>> HostMemory::make(Probe& probe, HostKind kind, Bytes size) {
  std::unique_ptr<HostMemory> made(new HostMemory(probe, kind, size));
  if (kind == HostKind::kArena) {
    made->arena_ = std::make_unique<HostArena>(probe.device(), Bytes{});
    SPILLWAY_ASSIGN_OR_RETURN(made->slot_, made->arena_->take(size));
    made->data_ = made->slot_.data();
  } else if (kind == HostKind::kPinned) {
    void* data = nullptr;
    SPILLWAY_RETURN_IF_ERROR(
        SPILLWAY_CALL_EXTRA(probe, MemHostAlloc, &data, size.count(), CU_MEMHOSTALLOC_PORTABLE));
    made->data_ = static_cast<std::byte*>(data);
  } else {
    SPILLWAY_RETURN_IF_ERROR(made->map());
  }
  return made;
}

Status HostMemory::map() {
  const Bytes mapped = size_ + kHugePage;
  void* mapping =
      mmap(nullptr, mapped.count(), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapping == MAP_FAILED)
    return SPILLWAY_ERROR(Code::kOutOfHostMemory, "mmap of a buffer failed");
  mapping_ = mapping;
  const Bytes address{reinterpret_cast<std::uintptr_t>(mapping)};
  std::byte* data =
      static_cast<std::byte*>(mapping) + (address.rounded_up(kHugePage) - address).count();
  if (is_registered())
    madvise(data, size_.count(), kind_ == HostKind::kHugePages ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
  touched_ = host_time([&] { touch(data, size_); });
  Status status;
  if (is_registered()) {
    registered_ = host_time([&] {
      status = SPILLWAY_CALL(
          probe_.api(), MemHostRegister, data, size_.count(), CU_MEMHOSTREGISTER_PORTABLE);
    });
  }
  if (status.ok()) data_ = data;
  return status;
}

HostMemory::~HostMemory() {
  if (data_ != nullptr) {
    if (kind_ == HostKind::kPinned) probe_.extra().MemFreeHost(data_);
    if (is_registered()) probe_.api().MemHostUnregister(data_);
  }
  if (mapping_ != nullptr) munmap(mapping_, (size_ + kHugePage).count());
}

}  // namespace spillway::micro
