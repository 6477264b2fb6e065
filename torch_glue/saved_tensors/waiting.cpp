// SPDX-License-Identifier: Apache-2.0
#include "torch_glue/saved_tensors/waiting.h"

#include "allocator/base/mutex.h"
#include "allocator/device/device_runtime.h"
#include "torch_glue/saved_tensors/saved_storage.h"

#include <map>
#include <unordered_map>
#include <utility>

namespace spillway::waiting {
namespace {

struct OfTag {
  std::uint64_t step = 0;
  std::map<std::pair<DeviceId, std::size_t>, std::weak_ptr<SavedStorage>> storages{};  // by index
};

LightMutex mutex;

/// Never destroyed.
std::unordered_map<TagId, OfTag>& all() {
  static auto* const tags = new std::unordered_map<TagId, OfTag>;
  return *tags;
}

/// DeviceRuntime::Reclaimer: the storage that is used last is offloaded first.
Bytes reclaim(DeviceRuntime& device, Bytes wanted) {
  Bytes freed;
  for (const auto& storage : all_on(device.device().id)) {
    if (freed >= wanted) break;
    freed += storage->reclaim();
  }
  return freed;
}

}  // namespace

void add(const Site& site, std::weak_ptr<SavedStorage> storage) {
  static std::once_flag once;
  std::call_once(once, [] { DeviceRuntime::set_reclaimer(&reclaim); });
  const LightLock lock(mutex);
  OfTag& tag = all()[site.tag];
  if (std::exchange(tag.step, site.step) != site.step) tag.storages.clear();
  tag.storages[{site.device, site.index}] = std::move(storage);
}

std::shared_ptr<SavedStorage> take(const Site& site) {
  const LightLock lock(mutex);
  OfTag& tag = all()[site.tag];
  const auto found = tag.storages.find({site.device, site.index});
  if (tag.step != site.step || found == tag.storages.end()) return nullptr;
  auto storage = found->second.lock();
  tag.storages.erase(found);
  return storage;
}

std::vector<std::shared_ptr<SavedStorage>> all_on(DeviceId device) {
  std::vector<std::shared_ptr<SavedStorage>> found;
  const LightLock lock(mutex);
  for (const auto& [id, tag] : all()) {
    for (const auto& [place, known] : tag.storages) {
      if (place.first != device) continue;
      if (auto storage = known.lock()) found.push_back(std::move(storage));
    }
  }
  return found;
}

}  // namespace spillway::waiting
