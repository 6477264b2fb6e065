// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "allocator/device/device_runtime.h"

#include <ATen/core/Tensor.h>

#include <memory>

namespace spillway {

/// Host memory of tensors, pinned unless it has another owner; freed with the last of them. Copies
/// may still use pinned memory then.
class HostMemory : public std::enable_shared_from_this<HostMemory> {
 public:
  /// Allocates pinned memory. Errors: c10::Error (no host memory).
  static std::shared_ptr<HostMemory> of(DeviceRuntime& device, Bytes size);

  explicit HostMemory(HostSlot slot) : data_(slot.data()), slot_(std::move(slot)) {}

  /// Wraps memory of `owner`; not for copies.
  HostMemory(std::byte* data, std::shared_ptr<const void> owner)
      : owner_(std::move(owner)), data_(data) {}

  ~HostMemory() = default;
  HostMemory(const HostMemory&) = delete;
  HostMemory& operator=(const HostMemory&) = delete;

  /// A dense tensor like `like` at this offset, which shares ownership of the memory.
  at::Tensor tensor(const at::Tensor& like, Bytes offset);

  [[nodiscard]] std::byte* data() const { return data_; }

  /// Begins copying `size` bytes at `source` to this offset, after `producer` and all noted copies.
  /// Notes the copy and returns its fence. Errors: c10::Error.
  driver::Fence write(CopyEngine& copies,
                      driver::DevicePtr source,
                      Bytes offset,
                      Bytes size,
                      driver::Stream producer);

  /// A copy of the part at this offset to the device, after the last write(). The caller notes it.
  [[nodiscard]] CopyIn read(Bytes offset, Bytes size, driver::DevicePtr destination) const;
  void note_copy(driver::Fence fence);
  /// Blocks the host until all noted copies have passed. Errors: c10::Error.
  void wait_for_copies();

 private:
  const std::shared_ptr<const void> owner_;
  std::byte* const data_;
  mutable Mutex mutex_;
  HostSlot slot_ SPILLWAY_GUARDED_BY(mutex_);  // pinned memory, with the fences of noted copies
  driver::Fence written_ SPILLWAY_GUARDED_BY(mutex_);
};

}  // namespace spillway
