// SPDX-License-Identifier: Apache-2.0
#include "torch_glue/pools/checkpoints.h"

#include <algorithm>

namespace spillway {

PoolCheckpoint::~PoolCheckpoint() {
  table_.gone(*this);
}

bool Checkpoints::OfPool::wants(void* block) const {
  return std::any_of(checkpoints.begin(), checkpoints.end(), [&](const PoolCheckpoint* each) {
    return each->live.count(block) > 0;
  });
}

std::shared_ptr<PoolCheckpoint> Checkpoints::make(PoolId pool, std::set<void*> live) {
  auto made = std::make_shared<PoolCheckpoint>(*this, pool, std::move(live));
  const Lock lock(mutex_);
  pools_[pool].checkpoints.insert(made.get());
  ++count_;
  return made;
}

bool Checkpoints::park(PoolId pool, void* block) {
  const Lock lock(mutex_);
  const auto found = pools_.find(pool);
  if (found == pools_.end() || !found->second.wants(block)) return false;
  found->second.parked.insert(block);
  return true;
}

bool Checkpoints::unpark(PoolId pool, void* block) {
  const Lock lock(mutex_);
  const auto found = pools_.find(pool);
  return found != pools_.end() && found->second.parked.erase(block) > 0;
}

bool Checkpoints::is_parked(PoolId pool, void* block) const {
  const Lock lock(mutex_);
  const auto found = pools_.find(pool);
  return found != pools_.end() && found->second.parked.count(block) > 0;
}

void Checkpoints::gone(const PoolCheckpoint& checkpoint) {
  std::vector<void*> unwanted;
  {
    const Lock lock(mutex_);
    OfPool& pool = pools_[checkpoint.pool];
    pool.checkpoints.erase(&checkpoint);
    --count_;
    for (auto block = pool.parked.begin(); block != pool.parked.end();) {
      if (pool.wants(*block)) {
        ++block;
        continue;
      }
      unwanted.push_back(*block);
      block = pool.parked.erase(block);
    }
    if (pool.checkpoints.empty()) pools_.erase(checkpoint.pool);
  }
  for (void* const block : unwanted)
    free_(block);
}

}  // namespace spillway
