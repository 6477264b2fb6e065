// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "allocator/base/mutex.h"
#include "allocator/driver/timeline.h"

#include <map>
#include <memory>

namespace spillway {

/// One timeline for each stream that a heap has to know the order of, made when first asked for.
/// Threads: safe. Ownership: owns the timelines.
class Timelines {
 public:
  explicit Timelines(const driver::Device& device) : device_(device) {}

  driver::Timeline& of(driver::Stream stream) {
    const Lock lock(mutex_);
    std::unique_ptr<driver::Timeline>& known = known_[stream.handle()];
    if (known == nullptr) known = std::make_unique<driver::Timeline>(device_, stream);
    return *known;
  }

 private:
  const driver::Device device_;
  Mutex mutex_;
  std::map<CUstream, std::unique_ptr<driver::Timeline>> known_ SPILLWAY_GUARDED_BY(mutex_);
};

}  // namespace spillway
