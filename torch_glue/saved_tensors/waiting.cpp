// SPDX-License-Identifier: Apache-2.0
#include "torch_glue/saved_tensors/waiting.h"

#include "allocator/base/mutex.h"
#include "torch_glue/saved_tensors/saved_storage.h"

#include <unordered_map>
#include <utility>

namespace spillway::waiting {
namespace {

struct OfTag {
  std::uint64_t step = 0;
  std::unordered_map<std::size_t, std::weak_ptr<SavedStorage>> storages{};  // by index
};

LightMutex mutex;

/// Never destroyed.
std::unordered_map<TagId, OfTag>& all() {
  static auto* const tags = new std::unordered_map<TagId, OfTag>;
  return *tags;
}

}  // namespace

void add(const Site& site, std::weak_ptr<SavedStorage> storage) {
  const LightLock lock(mutex);
  OfTag& tag = all()[site.tag];
  if (std::exchange(tag.step, site.step) != site.step) tag.storages.clear();
  tag.storages[site.index] = std::move(storage);
}

std::shared_ptr<SavedStorage> take(const Site& site) {
  const LightLock lock(mutex);
  OfTag& tag = all()[site.tag];
  const auto found = tag.storages.find(site.index);
  if (tag.step != site.step || found == tag.storages.end()) return nullptr;
  auto storage = found->second.lock();
  tag.storages.erase(found);
  return storage;
}

}  // namespace spillway::waiting
