// SPDX-License-Identifier: Apache-2.0
#include "torch_glue/saved_tensors/recomputed_results.h"

#include "torch_glue/saved_tensors/recomputed_storage.h"

#include <utility>

namespace spillway {

RecomputedResults::RecomputedResults() {
  DeviceRuntime::set_reclaimer(DeviceRuntime::Reclaims::kRecomputed,
                               &RecomputedResults::reclaim_on);
}

RecomputedResults& RecomputedResults::instance() {
  static auto* const all = new RecomputedResults;
  return *all;
}

void RecomputedResults::add(const Site& site, const std::shared_ptr<RecomputedStorage>& storage) {
  const LightLock lock(mutex_);
  held_[key(site)] = storage;
}

void RecomputedResults::remove(const Site& site) {
  const LightLock lock(mutex_);
  held_.erase(key(site));
}

Bytes RecomputedResults::reclaim_on(DeviceRuntime& device, Bytes wanted, BlockUse /*use*/) {
  Bytes freed;
  for (const auto& storage : instance().on(device.device().id)) {
    if (freed >= wanted) break;
    freed += storage->reclaim();
  }
  return freed;
}

std::vector<std::shared_ptr<RecomputedStorage>> RecomputedResults::on(DeviceId device) {
  std::vector<std::shared_ptr<RecomputedStorage>> found;
  const LightLock lock(mutex_);
  for (const auto& [key, known] : held_) {
    if (std::get<DeviceId>(key) != device) continue;
    if (auto storage = known.lock()) found.push_back(std::move(storage));
  }
  return found;
}

}  // namespace spillway
