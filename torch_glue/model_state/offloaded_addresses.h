// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "allocator/base/bytes.h"
#include "allocator/base/mutex.h"
#include "allocator/base/result.h"
#include "allocator/driver/handles.h"

#include <map>
#include <vector>

namespace spillway {

/// Device addresses at which nothing is mapped, one range per offloaded storage. Programs compare
/// the addresses of tensors, so two storages never have the same one. An access without a fetch
/// faults, and never reads the bytes of another storage.
/// Threads: safe.
/// Ownership: owns its reservations; never destroyed in a process that uses it from PyTorch.
class OffloadedAddresses {
 public:
  explicit OffloadedAddresses(const driver::Device& device) : device_(device) {}

  /// Addresses for `size` bytes. Errors: kDriver.
  Result<driver::DevicePtr> take(Bytes size);
  /// Returns those of take(). They may be given to another storage.
  void give(driver::DevicePtr at, Bytes size);

 private:
  const driver::Device device_;
  LightMutex mutex_;
  std::map<Bytes, std::vector<driver::DevicePtr>> returned_ SPILLWAY_GUARDED_BY(mutex_);
  driver::DevicePtr next_ SPILLWAY_GUARDED_BY(mutex_);
  Bytes left_ SPILLWAY_GUARDED_BY(mutex_);
};

}  // namespace spillway
