// SPDX-License-Identifier: Apache-2.0
// Memory of graphs and of torch.cuda.MemPool: separate pools of the heap.
#include "torch_glue/cuda_allocator/cuda_allocator.h"

#include <c10/cuda/CUDAGraphsC10Utils.h>

#include <algorithm>

namespace spillway {
namespace {

/// No two blocks of this size share a piece of physical memory.
constexpr std::uint64_t kWhole = std::uint64_t{2} << 20;

Bytes as_asked(const TorchPool& pool, size_t size) {
  if (!pool.no_split || size > SIZE_MAX - kWhole) return Bytes{size};
  return Bytes{(size + kWhole - 1) / kWhole * kWhole};
}

/// Set while this thread calls a pool's own allocator. If that is Spillway's heap through another
/// entry point, its memory belongs to no pool.
class AskingProvider {
 public:
  AskingProvider() { asking_ = true; }

  ~AskingProvider() { asking_ = false; }

  AskingProvider(const AskingProvider&) = delete;
  AskingProvider& operator=(const AskingProvider&) = delete;

  static bool now() { return asking_; }

 private:
  static thread_local bool asking_;
};

thread_local bool AskingProvider::asking_ = false;

}  // namespace

Result<void*> SpillwayAllocator::allocate_in(const TorchPool& pool,
                                             DeviceRuntime& runtime,
                                             size_t size,
                                             cudaStream_t stream) {
  const bool asking = AskingProvider::now();
  if (pool.provider && size > 0 && !asking) {
    const AskingProvider guard;
    void* const at = pool.provider->allocate(Bytes{size}, stream);
    if (at != nullptr) return at;
    return SPILLWAY_ERROR(Code::kOutOfDeviceMemory, "the memory pool's own allocator has no more");
  }
  SPILLWAY_ASSIGN_OR_RETURN(const driver::DevicePtr at,
                            runtime.allocate(as_asked(pool, size),
                                             driver::Stream(stream, runtime.device().id),
                                             asking ? PoolId::kShared : pool.id));
  return at.raw();
}

std::shared_ptr<ProviderMemory> SpillwayAllocator::provider_of(void* at) {
  if (!any_provider_.load(std::memory_order_acquire)) return nullptr;
  const Lock lock(mutex_);
  for (const auto& memory : providers_) {
    if (memory->find(at).first != nullptr) return memory;
  }
  return nullptr;
}

void SpillwayAllocator::trim_providers() {
  std::vector<std::shared_ptr<ProviderMemory>> all;
  {
    const Lock lock(mutex_);
    all = providers_;
  }
  for (const auto& memory : all)
    if (!pools_.provides(*memory)) memory->trim_sync();
  const Lock lock(mutex_);
  const auto done = [&](const auto& memory) {
    return memory->empty() && !pools_.provides(*memory);
  };
  providers_.erase(std::remove_if(providers_.begin(), providers_.end(), done), providers_.end());
}

void SpillwayAllocator::beginAllocateToPool(c10::DeviceIndex device,
                                            c10::MempoolId_t pool,
                                            std::function<bool(cudaStream_t)> filter) {
  pools_.open(device, pool, std::move(filter));
}

void SpillwayAllocator::endAllocateToPool(c10::DeviceIndex device, c10::MempoolId_t pool) {
  pools_.close(device, pool);
  if (pools_.any_open()) return;
  for (void* const block : captured_uses_.end())
    raw_delete(block);
}

void SpillwayAllocator::createOrIncrefPool(c10::DeviceIndex index,
                                           c10::MempoolId_t pool,
                                           std::shared_ptr<ccc::CUDAAllocator> provider) {
  std::shared_ptr<ProviderMemory> memory;
  if (provider) {
    memory = std::make_shared<ProviderMemory>(device(index).device(), std::move(provider));
    const Lock lock(mutex_);
    providers_.push_back(memory);
    any_provider_ = true;
  }
  pools_.add_user(index, pool, std::move(memory));
}

void SpillwayAllocator::releasePool(c10::DeviceIndex index, c10::MempoolId_t name) {
  const auto pool = pools_.remove_user(index, name);
  if (!pool) return;
  trim_providers();
  DeviceRuntime& runtime = device(index);
  runtime.heap().release_pool(pool->id);
  if (history_.on()) report_mapping(index, runtime, nullptr);
  for (const PoolId id : pools_.unused())
    if (pool_blocks(runtime, id).empty()) pools_.forget(id);
}

int SpillwayAllocator::getPoolUseCount(c10::DeviceIndex device, c10::MempoolId_t pool) {
  return pools_.users(device, pool);
}

void SpillwayAllocator::setUseOnOOM(c10::DeviceIndex device, c10::MempoolId_t pool, bool use) {
  pools_.set_use_on_oom(device, pool, use);
}

void SpillwayAllocator::setNoSplit(c10::DeviceIndex device, c10::MempoolId_t pool) {
  pools_.set_no_split(device, pool);
}

std::set<void*> SpillwayAllocator::pool_blocks(DeviceRuntime& runtime, PoolId pool) {
  std::set<void*> live;
  for (const HeapSegmentInfo& segment : runtime.heap().view().segments()) {
    if (segment.pool != pool) continue;
    for (const HeapBlockInfo& block : segment.blocks) {
      if (block.allocated && !checkpoints_.is_parked(pool, block.at.raw()))
        live.insert(block.at.raw());
    }
  }
  return live;
}

TorchPool SpillwayAllocator::heap_pool(c10::DeviceIndex device, c10::MempoolId_t name) {
  const auto pool = pools_.find(device, name);
  TORCH_CHECK(pool,
              "Spillway: GPU ",
              static_cast<int>(device),
              " has no memory pool (",
              name.first,
              ", ",
              name.second,
              "). Allocate to it first.");
  if (pool->provider) absent("checkpoints of a memory pool with an allocator of its own");
  return *pool;
}

bool SpillwayAllocator::checkPoolLiveAllocations(c10::DeviceIndex index,
                                                 c10::MempoolId_t pool,
                                                 const std::unordered_set<void*>& expected) {
  const auto live = pool_blocks(device(index), heap_pool(index, pool).id);
  return live.size() == expected.size() &&
         std::all_of(live.begin(), live.end(), [&](void* at) { return expected.count(at) > 0; });
}

std::shared_ptr<ccc::AllocatorState> SpillwayAllocator::getCheckpointState(c10::DeviceIndex index,
                                                                           c10::MempoolId_t pool) {
  const PoolId id = heap_pool(index, pool).id;
  return checkpoints_.make(id, pool_blocks(device(index), id));
}

ccc::CheckpointDelta SpillwayAllocator::setCheckpointPoolState(
    c10::DeviceIndex index, std::shared_ptr<ccc::AllocatorState> state) {
  const auto checkpoint = std::dynamic_pointer_cast<PoolCheckpoint>(state);
  TORCH_CHECK(
      checkpoint,
      "Spillway: setCheckpointPoolState: the state comes from another allocator. Pass one from "
      "getCheckpointState of Spillway's.");
  ccc::CheckpointDelta delta;
  for (void* const at : pool_blocks(device(index), checkpoint->pool)) {
    delta.ptrs_freed.push_back(at);
    if (checkpoint->live.count(at) == 0) raw_delete(at);
  }
  for (void* const at : checkpoint->live) {
    checkpoints_.unpark(checkpoint->pool, at);
    delta.dataptrs_allocd.emplace_back(
        at, at, raw_deleter(), c10::Device(c10::DeviceType::CUDA, index));
  }
  return delta;
}

}  // namespace spillway
