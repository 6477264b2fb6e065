// SPDX-License-Identifier: Apache-2.0
#include "torch_glue/shards/host_memory.h"

#include "torch_glue/base/check.h"

#include <ATen/ops/from_blob.h>

namespace spillway {

std::shared_ptr<HostMemory> HostMemory::of(DeviceRuntime& device, Bytes size) {
  HostSlot slot = checked(device.arena().take(size));
  // The host writes to it: earlier uses of the slot must be complete.
  check(slot.fences.wait_sync());
  slot.fences.clear();
  return std::make_shared<HostMemory>(std::move(slot));
}

at::Tensor HostMemory::tensor(const at::Tensor& like, Bytes offset) {
  const auto options = at::TensorOptions().dtype(like.dtype()).device(at::kCPU);
  return at::from_blob(
      data_ + offset.count(),
      like.sizes(),
      like.strides(),
      [owned = shared_from_this()](void*) { static_cast<void>(owned); },
      options);
}

driver::Fence HostMemory::write(CopyEngine& copies,
                                driver::DevicePtr source,
                                Bytes offset,
                                Bytes size,
                                driver::Stream producer) {
  const Lock lock(mutex_);
  written_ = checked(
      copies.to_host({source, HostBytes{data_ + offset.count(), size}, slot_.fences}, producer));
  return written_;
}

CopyIn HostMemory::read(Bytes offset, Bytes size, driver::DevicePtr destination) const {
  const Lock lock(mutex_);
  return {{data_ + offset.count(), size}, written_, destination};
}

void HostMemory::note_copy(driver::Fence fence) {
  const Lock lock(mutex_);
  slot_.fences.add(fence);
}

void HostMemory::wait_for_copies() {
  driver::FenceSet copies;
  {
    const Lock lock(mutex_);
    std::swap(copies, slot_.fences);
  }
  check(copies.wait_sync());
}

}  // namespace spillway
