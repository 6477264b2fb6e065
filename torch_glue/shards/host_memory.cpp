// SPDX-License-Identifier: Apache-2.0
#include "torch_glue/shards/host_memory.h"

#include "allocator/transfer/free_ranges.h"
#include "torch_glue/check.h"

#include <ATen/ops/from_blob.h>

namespace spillway {

std::shared_ptr<HostMemory> HostMemory::of(DeviceRuntime& device, Bytes size) {
  auto memory = std::make_shared<HostMemory>(device, checked(device.arena().take(size)));
  // The host writes to it: what used the slot before must be over.
  for (const driver::Fence fence : memory->slot_.fences)
    check(driver::Timeline::wait_sync(fence));
  return memory;
}

HostMemory::~HostMemory() {
  if (device_ == nullptr) return;
  const Lock lock(mutex_);
  for (const driver::Fence fence : copies_)
    add_fence(slot_.fences, fence);
  device_->arena().give(std::move(slot_), {});
}

at::Tensor HostMemory::tensor(const at::Tensor& like, Bytes offset) {
  const auto options = at::TensorOptions().dtype(like.dtype()).device(at::kCPU);
  return at::from_blob(
      slot_.data + offset.count(),
      like.sizes(),
      like.strides(),
      [owned = shared_from_this()](void*) { static_cast<void>(owned); },
      options);
}

HostSlot HostMemory::part(Bytes offset, Bytes size) const {
  return {slot_.data + offset.count(), size, {}};
}

HostSlot HostMemory::part_to_write(Bytes offset, Bytes size) const {
  const Lock lock(mutex_);
  return {slot_.data + offset.count(), size, copies_};
}

void HostMemory::note_written(driver::Fence fence) {
  const Lock lock(mutex_);
  add_fence(copies_, fence);
  written_ = fence;
}

driver::Fence HostMemory::written() const {
  const Lock lock(mutex_);
  return written_;
}

void HostMemory::note_copy(driver::Fence fence) {
  const Lock lock(mutex_);
  add_fence(copies_, fence);
}

void HostMemory::wait_for_copies() {
  std::vector<driver::Fence> copies;
  {
    const Lock lock(mutex_);
    copies.swap(copies_);
  }
  for (const driver::Fence fence : copies)
    check(driver::Timeline::wait_sync(fence));
}

}  // namespace spillway
