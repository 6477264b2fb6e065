// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "allocator/base/mutex.h"
#include "allocator/driver/timeline.h"

#include <map>
#include <memory>
#include <utility>

namespace spillway::driver {

/// One timeline for each stream whose order something on this device has to know, made when first
/// asked for. Threads: safe. Ownership: owns the timelines.
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
  /// Where another device cannot be opened, our own: then its streams cannot be marked, and what
  /// they use is not handed out again.
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
