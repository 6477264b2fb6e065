// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "allocator/runtime/device_runtime.h"

#include <ATen/core/Tensor.h>

#include <memory>

namespace spillway {

/// Host memory that tensors lie in, pinned unless it is another owner's; it goes back with the last
/// of them.
class HostMemory : public std::enable_shared_from_this<HostMemory> {
 public:
  /// Pinned. Errors: c10::Error (host memory cannot be had).
  static std::shared_ptr<HostMemory> of(DeviceRuntime& device, Bytes size);

  HostMemory(DeviceRuntime& device, HostSlot slot) : device_(&device), slot_(std::move(slot)) {}

  /// Memory that `owner` has; not for copies.
  HostMemory(std::byte* data, Bytes size, std::shared_ptr<const void> owner)
      : owner_(std::move(owner)), slot_{data, size, {}} {}

  ~HostMemory();
  HostMemory(const HostMemory&) = delete;
  HostMemory& operator=(const HostMemory&) = delete;

  /// A dense tensor like `like`, from this byte on, that owns the memory together with others.
  at::Tensor tensor(const at::Tensor& like, Bytes offset);

  [[nodiscard]] std::byte* data() const { return slot_.data; }

  /// The part from this byte on, for copies. They are to be noted; a copy to it comes after those
  /// that were.
  [[nodiscard]] HostSlot part(Bytes offset, Bytes size) const;
  [[nodiscard]] HostSlot part_to_write(Bytes offset, Bytes size) const;
  void note_copy(driver::Fence fence);
  /// Notes a copy to it, which copies from it are to come after.
  void note_written(driver::Fence fence);
  [[nodiscard]] driver::Fence written() const;
  /// Blocks the host until all copies noted have passed. Errors: c10::Error.
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
