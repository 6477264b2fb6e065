// SPDX-License-Identifier: Apache-2.0
#include "torch_glue/pools/pool_table.h"

#include <algorithm>

namespace spillway {
namespace {

std::string text(c10::MempoolId_t name) {
  return c10::str("(", name.first, ", ", name.second, ")");
}

}  // namespace

TorchPool PoolTable::route(c10::DeviceIndex device, cudaStream_t stream) const {
  std::shared_ptr<const OpenPools> open;
  {
    const Lock lock(mutex_);
    open = open_;
  }
  for (const Open& each : *open) {
    if (each.key.first == device && each.filter(stream)) return each.pool;
  }
  return {};
}

void PoolTable::add_user(c10::DeviceIndex device,
                         c10::MempoolId_t name,
                         std::shared_ptr<ProviderMemory> provider) {
  const Lock lock(mutex_);
  const auto [used, made] = used_.try_emplace({device, name});
  if (made) {
    used->second.pool = {name, PoolId{next_++}, std::move(provider), false, false};
    names_[used->second.pool.id] = name;
  }
  ++used->second.users;
}

std::optional<TorchPool> PoolTable::remove_user(c10::DeviceIndex device, c10::MempoolId_t name) {
  const Lock lock(mutex_);
  Used& used = known({device, name});
  if (--used.users > 0) return std::nullopt;
  TorchPool pool = std::move(used.pool);
  used_.erase({device, name});
  return pool;
}

int PoolTable::users(c10::DeviceIndex device, c10::MempoolId_t name) const {
  const Lock lock(mutex_);
  const auto found = used_.find({device, name});
  return found == used_.end() ? 0 : found->second.users;
}

void PoolTable::open(c10::DeviceIndex device, c10::MempoolId_t name, Filter filter) {
  const Key key{device, name};
  {
    const Lock lock(mutex_);
    for (const Open& each : *open_) {
      TORCH_CHECK(each.key != key,
                  "Spillway: allocations already go to the memory pool ",
                  text(name),
                  ". End it first (endAllocateToPool).");
    }
  }
  add_user(device, name);
  const Lock lock(mutex_);
  OpenPools open = *open_;
  open.push_back({key, known(key).pool, std::move(filter)});
  set_open(std::move(open));
}

void PoolTable::close(c10::DeviceIndex device, c10::MempoolId_t name) {
  const Lock lock(mutex_);
  OpenPools open = *open_;
  const auto found = std::find_if(open.begin(), open.end(), [&](const Open& each) {
    return each.key == Key{device, name};
  });
  TORCH_CHECK(found != open.end(),
              "Spillway: allocations to the memory pool ",
              text(name),
              " cannot end, because they have not begun on GPU ",
              static_cast<int>(device),
              ". Call beginAllocateToPool first.");
  open.erase(found);
  set_open(std::move(open));
}

void PoolTable::set_use_on_oom(c10::DeviceIndex device, c10::MempoolId_t name, bool use) {
  const Lock lock(mutex_);
  known({device, name}).pool.use_on_oom = use;
  update_open({device, name});
}

void PoolTable::set_no_split(c10::DeviceIndex device, c10::MempoolId_t name) {
  const Lock lock(mutex_);
  known({device, name}).pool.no_split = true;
  update_open({device, name});
}

std::optional<TorchPool> PoolTable::find(c10::DeviceIndex device, c10::MempoolId_t name) const {
  const Lock lock(mutex_);
  const auto found = used_.find({device, name});
  if (found == used_.end()) return std::nullopt;
  return found->second.pool;
}

std::vector<TorchPool> PoolTable::last_resorts(c10::DeviceIndex device) const {
  const Lock lock(mutex_);
  std::vector<TorchPool> pools;
  for (const auto& [key, used] : used_) {
    if (key.first == device && used.pool.use_on_oom) pools.push_back(used.pool);
  }
  return pools;
}

bool PoolTable::provides(const ProviderMemory& memory) const {
  const Lock lock(mutex_);
  return std::any_of(used_.begin(), used_.end(), [&](const auto& each) {
    return each.second.pool.provider.get() == &memory;
  });
}

void PoolTable::describe_provided(
    c10::DeviceIndex device,
    c10::MempoolId_t only,
    std::vector<c10::CachingDeviceAllocator::SegmentInfo>& into) const {
  const Lock lock(mutex_);
  for (const auto& [key, used] : used_) {
    const bool wanted = only == c10::MempoolId_t{0, 0} || only == key.second;
    if (key.first != device || !wanted || !used.pool.provider) continue;
    used.pool.provider->describe(device, key.second, into);
  }
}

c10::MempoolId_t PoolTable::name_of(PoolId id) const {
  const Lock lock(mutex_);
  const auto found = names_.find(id);
  return found == names_.end() ? c10::MempoolId_t{0, 0} : found->second;
}

void PoolTable::forget(PoolId id) {
  const Lock lock(mutex_);
  names_.erase(id);
}

std::vector<PoolId> PoolTable::unused() const {
  const Lock lock(mutex_);
  std::vector<PoolId> ids;
  for (const auto& [id, name] : names_) {
    const bool is_used = std::any_of(used_.begin(), used_.end(), [&, id = id](const auto& each) {
      return each.second.pool.id == id;
    });
    if (!is_used) ids.push_back(id);
  }
  return ids;
}

PoolTable::Used& PoolTable::known(const Key& key) {
  const auto found = used_.find(key);
  TORCH_CHECK(found != used_.end(),
              "Spillway: GPU ",
              static_cast<int>(key.first),
              " has no memory pool ",
              text(key.second),
              ". Allocate to it first, and release it once.");
  return found->second;
}

void PoolTable::update_open(const Key& key) {
  OpenPools open = *open_;
  for (Open& each : open) {
    if (each.key == key) each.pool = known(key).pool;
  }
  set_open(std::move(open));
}

void PoolTable::set_open(OpenPools open) {
  open_count_ = open.size();
  open_ = std::make_shared<const OpenPools>(std::move(open));
}

}  // namespace spillway
