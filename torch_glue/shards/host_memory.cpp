// SPDX-License-Identifier: Apache-2.0
#include "torch_glue/shards/host_memory.h"

#include "torch_glue/base/check.h"

#include <ATen/ops/from_blob.h>

namespace spillway {

std::shared_ptr<HostMemory> HostMemory::of(DeviceRuntime& device, Bytes size) {
  auto memory = std::make_shared<HostMemory>(device, checked(device.arena().take(size)));
  // The host writes to it: earlier uses of the slot must be complete.
  check(memory->slot_.fences.wait_sync());
  return memory;
}

HostMemory::~HostMemory() {
  if (device_ == nullptr) return;
  const Lock lock(mutex_);
  slot_.fences.add(copies_);
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
  copies_.add(fence);
  written_ = fence;
}

driver::Fence HostMemory::written() const {
  const Lock lock(mutex_);
  return written_;
}

void HostMemory::note_copy(driver::Fence fence) {
  const Lock lock(mutex_);
  copies_.add(fence);
}

void HostMemory::wait_for_copies() {
  driver::FenceSet copies;
  {
    const Lock lock(mutex_);
    std::swap(copies, copies_);
  }
  check(copies.wait_sync());
}

}  // namespace spillway
