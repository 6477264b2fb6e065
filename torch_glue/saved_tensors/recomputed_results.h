// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "allocator/base/ids.h"
#include "allocator/base/mutex.h"
#include "allocator/runtime/runtime.h"

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <tuple>
#include <vector>

namespace spillway {

class RecomputedStorage;

/// The recomputed storages whose results are on the device for later uses, in steps with a budget.
/// Where an allocation has no room, they are released again: the first saved one first, because
/// backward passes usually use it last.
/// Threads: safe.
class RecomputedResults {
 public:
  /// Never destroyed.
  static RecomputedResults& instance();

  void add(const Site& site, const std::shared_ptr<RecomputedStorage>& storage);
  void remove(const Site& site);

 private:
  using Key = std::tuple<DeviceId, TagId, std::uint64_t, std::size_t>;

  RecomputedResults();

  static Key key(const Site& site) { return {site.device, site.tag, site.step, site.index}; }

  /// DeviceRuntime::Reclaimer.
  static Bytes reclaim_on(DeviceRuntime& device, Bytes wanted, BlockUse use);
  std::vector<std::shared_ptr<RecomputedStorage>> on(DeviceId device);

  LightMutex mutex_;
  std::map<Key, std::weak_ptr<RecomputedStorage>> held_ SPILLWAY_GUARDED_BY(mutex_);
};

}  // namespace spillway
