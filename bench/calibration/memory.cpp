// SPDX-License-Identifier: Apache-2.0
#include "bench/calibration/memory.h"

#include <sys/mman.h>

#include <thread>
#include <utility>

namespace spillway::calibration {
namespace {

using namespace literals;

constexpr Bytes kHugePage = 2_MiB;

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

std::string_view name(Pinning pinning) {
  switch (pinning) {
    case Pinning::kDriver:
      return "cuMemHostAlloc";
    case Pinning::kHugePages:
      return "huge pages, registered";
    case Pinning::kSmallPages:
      return "small pages, registered";
  }
  return "";
}

Result<HostBuffer> HostBuffer::make(Probe& probe, Pinning pinning, Bytes size) {
  HostBuffer buffer(probe, pinning, size);
  Status status;
  if (pinning == Pinning::kDriver) {
    void* data = nullptr;
    buffer.cost_.pin = host_time([&] {
      status =
          SPILLWAY_CALL_EXTRA(probe, MemHostAlloc, &data, size.count(), CU_MEMHOSTALLOC_PORTABLE);
    });
    SPILLWAY_RETURN_IF_ERROR(status);
    buffer.data_ = static_cast<std::byte*>(data);
    return buffer;
  }
  const Bytes wanted = size + kHugePage;
  void* mapping =
      mmap(nullptr, wanted.count(), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapping == MAP_FAILED)
    return SPILLWAY_ERROR(Code::kOutOfHostMemory, "mmap of a pinned buffer failed");
  buffer.mapping_ = static_cast<std::byte*>(mapping);
  buffer.mapped_ = wanted;
  const auto address = reinterpret_cast<std::uintptr_t>(mapping);
  std::byte* data = buffer.mapping_ + (Bytes{address}.rounded_up(kHugePage).count() - address);
  madvise(data, size.count(), pinning == Pinning::kHugePages ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
  buffer.cost_.fault = host_time([&] { touch(data, size); });
  buffer.cost_.pin = host_time([&] {
    status = SPILLWAY_CALL(
        probe.api(), MemHostRegister, data, size.count(), CU_MEMHOSTREGISTER_PORTABLE);
  });
  SPILLWAY_RETURN_IF_ERROR(status);
  buffer.data_ = data;
  return buffer;
}

HostBuffer::HostBuffer(HostBuffer&& other) noexcept
    : probe_(other.probe_),
      pinning_(other.pinning_),
      size_(other.size_),
      mapping_(std::exchange(other.mapping_, nullptr)),
      mapped_(other.mapped_),
      data_(std::exchange(other.data_, nullptr)),
      cost_(other.cost_) {}

HostBuffer::~HostBuffer() {
  if (data_ != nullptr && mapping_ == nullptr) probe_->extra().MemFreeHost(data_);
  if (data_ != nullptr && mapping_ != nullptr) probe_->api().MemHostUnregister(data_);
  if (mapping_ != nullptr) munmap(mapping_, mapped_.count());
}

Result<DeviceRange> DeviceRange::make(Probe& probe, Bytes chunk, std::size_t count) {
  DeviceRange range(probe, chunk, count);
  const driver::Api& api = probe.api();
  const Bytes size{chunk.count() * count};
  CUmemAllocationProp kind{};
  kind.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  kind.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
  CUmemAccessDesc access{};
  access.location = kind.location;
  access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  Status status;
  range.cost_.reserve = host_time(
      [&] { status = SPILLWAY_CALL(api, MemAddressReserve, &range.at_, size.count(), 0, 0, 0); });
  SPILLWAY_RETURN_IF_ERROR(status);
  range.cost_.create = host_time([&] {
    while (status.ok() && range.chunks_.size() < count) {
      CUmemGenericAllocationHandle handle = 0;
      status = SPILLWAY_CALL(api, MemCreate, &handle, chunk.count(), &kind, 0);
      if (status.ok()) range.chunks_.push_back(handle);
    }
  });
  SPILLWAY_RETURN_IF_ERROR(status);
  range.cost_.map = host_time([&] {
    for (; status.ok() && range.mapped_ < count; range.mapped_ += status.ok() ? 1U : 0U) {
      const CUdeviceptr at = range.at_ + range.mapped_ * chunk.count();
      status = SPILLWAY_CALL(api, MemMap, at, chunk.count(), 0, range.chunks_[range.mapped_], 0);
    }
  });
  SPILLWAY_RETURN_IF_ERROR(status);
  range.cost_.access = host_time(
      [&] { status = SPILLWAY_CALL(api, MemSetAccess, range.at_, size.count(), &access, 1); });
  SPILLWAY_RETURN_IF_ERROR(status);
  return range;
}

DeviceRange::DeviceRange(DeviceRange&& other) noexcept
    : probe_(other.probe_),
      chunk_(other.chunk_),
      count_(other.count_),
      at_(std::exchange(other.at_, 0)),
      chunks_(std::exchange(other.chunks_, {})),
      mapped_(std::exchange(other.mapped_, 0)),
      cost_(other.cost_) {}

Seconds DeviceRange::unmap() {
  return host_time([&] {
    for (; mapped_ > 0; --mapped_)
      probe_->api().MemUnmap(at_ + (mapped_ - 1) * chunk_.count(), chunk_.count());
  });
}

Seconds DeviceRange::release() {
  return host_time([&] {
    for (const CUmemGenericAllocationHandle handle : chunks_)
      probe_->api().MemRelease(handle);
    chunks_.clear();
  });
}

DeviceRange::~DeviceRange() {
  unmap();
  release();
  if (at_ != 0) probe_->api().MemAddressFree(at_, chunk_.count() * count_);
}

}  // namespace spillway::calibration
