// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "allocator/device/device_runtime.h"

#include <ATen/core/Tensor.h>

#include <memory>

namespace spillway {

/// Host memory of tensors, pinned unless it has another owner; freed with the last of them.
class HostMemory : public std::enable_shared_from_this<HostMemory> {
 public:
  /// Allocates pinned memory. Errors: c10::Error (no host memory).
  static std::shared_ptr<HostMemory> of(DeviceRuntime& device, Bytes size);

  HostMemory(DeviceRuntime& device, HostSlot slot) : device_(&device), slot_(std::move(slot)) {}

  /// Wraps memory of `owner`; not for copies.
  HostMemory(std::byte* data, Bytes size, std::shared_ptr<const void> owner)
      : owner_(std::move(owner)), slot_{data, size, {}} {}

  ~HostMemory();
  HostMemory(const HostMemory&) = delete;
  HostMemory& operator=(const HostMemory&) = delete;

  /// A dense tensor like `like` at this offset, which shares ownership of the memory.
  at::Tensor tensor(const at::Tensor& like, Bytes offset);

  [[nodiscard]] std::byte* data() const { return slot_.data; }

  /// The part at this offset, for copies. The caller must note them; a copy into it is ordered
  /// after the noted ones.
  [[nodiscard]] HostSlot part(Bytes offset, Bytes size) const;
  [[nodiscard]] HostSlot part_to_write(Bytes offset, Bytes size) const;
  void note_copy(driver::Fence fence);
  /// Notes a copy into it; copies from it are ordered after that.
  void note_written(driver::Fence fence);
  [[nodiscard]] driver::Fence written() const;
  /// Blocks the host until all noted copies have passed. Errors: c10::Error.
  void wait_for_copies();

 private:
  DeviceRuntime* const device_ = nullptr;  // of pinned memory
  const std::shared_ptr<const void> owner_;
  HostSlot slot_;
  mutable Mutex mutex_;
  driver::FenceSet copies_ SPILLWAY_GUARDED_BY(mutex_);
  driver::Fence written_ SPILLWAY_GUARDED_BY(mutex_);
};

}  // namespace spillway
