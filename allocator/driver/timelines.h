// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "allocator/base/mutex.h"
#include "allocator/driver/timeline.h"

#include <map>
#include <memory>
#include <utility>

namespace spillway::driver {

/// One timeline per stream whose order this device must observe, created on first use.
/// Threads: safe.
/// Ownership: owns the timelines.
class Timelines {
 public:
  explicit Timelines(const Device& device) : device_(device) {}

  Timeline& of(Stream stream) {
    const LightLock lock(mutex_);
    std::unique_ptr<Timeline>& known = known_[{stream.device(), stream.handle()}];
    if (known == nullptr) known = std::make_unique<Timeline>(device_of(stream), stream);
    return *known;
  }

 private:
  /// If another device cannot be opened, uses this device. Its streams then cannot be marked, and
  /// memory that they use is not reused.
  [[nodiscard]] Device device_of(Stream stream) const {
    if (stream.device() == device_.id) return device_;
    const auto other = Device::open(*device_.api, stream.device());
    return other.ok() ? other.value() : device_;
  }

  const Device device_;
  LightMutex mutex_;
  std::map<std::pair<DeviceId, CUstream>, std::unique_ptr<Timeline>> known_
      SPILLWAY_GUARDED_BY(mutex_);
};

}  // namespace spillway::driver
