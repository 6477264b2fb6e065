// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "allocator/base/ids.h"
#include "allocator/base/mutex.h"
#include "torch_glue/pools/provider_memory.h"

#include <c10/cuda/CUDACachingAllocator.h>

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

namespace spillway {

/// One of PyTorch's pools: of graphs that share memory, or a torch.cuda.MemPool.
struct TorchPool {
  c10::MempoolId_t name{0, 0};
  PoolId id = PoolId::kShared;
  std::shared_ptr<ProviderMemory> provider;  // the source of its memory; null: the heap
  bool use_on_oom = false;
  bool no_split = false;  // no two blocks of it share physical memory
};

/// PyTorch's pools by device and name: their users, and the allocations routed to them.
///
/// Threads: safe; PyTorch's filters are called without a lock of ours.
class PoolTable {
 public:
  using Filter = std::function<bool(cudaStream_t)>;

  /// Whether allocations may be routed to a pool now (a capture, or use_mem_pool); checked on every
  /// allocation.
  [[nodiscard]] bool any_open() const { return open_count_.load(std::memory_order_relaxed) > 0; }

  /// The pool for an allocation of this thread for `stream`; the heap's shared memory if no open
  /// pool applies.
  [[nodiscard]] TorchPool route(c10::DeviceIndex device, cudaStream_t stream) const;

  /// Adds a user of the pool; creates the pool if it is new.
  void add_user(c10::DeviceIndex device,
                c10::MempoolId_t name,
                std::shared_ptr<ProviderMemory> provider = nullptr);
  /// Removes a user. If it was the last one, removes the pool and returns it.
  std::optional<TorchPool> remove_user(c10::DeviceIndex device, c10::MempoolId_t name);
  [[nodiscard]] int users(c10::DeviceIndex device, c10::MempoolId_t name) const;

  /// Throws c10::Error if it is already open, or not open.
  void open(c10::DeviceIndex device, c10::MempoolId_t name, Filter filter);
  void close(c10::DeviceIndex device, c10::MempoolId_t name);

  void set_use_on_oom(c10::DeviceIndex device, c10::MempoolId_t name, bool use);
  void set_no_split(c10::DeviceIndex device, c10::MempoolId_t name);

  [[nodiscard]] std::optional<TorchPool> find(c10::DeviceIndex device, c10::MempoolId_t name) const;
  /// The pools that other allocations may use when memory runs out.
  [[nodiscard]] std::vector<TorchPool> last_resorts(c10::DeviceIndex device) const;

  /// Whether the memory belongs to a pool with users.
  [[nodiscard]] bool provides(const ProviderMemory& memory) const;
  /// Adds the segments of pools with a provider: of the pool `only`, or of all pools for {0, 0}.
  void describe_provided(c10::DeviceIndex device,
                         c10::MempoolId_t only,
                         std::vector<c10::CachingDeviceAllocator::SegmentInfo>& into) const;

  /// PyTorch's name of a heap's pool; {0, 0} for shared memory. A pool without users keeps its name
  /// until `forget` is called.
  [[nodiscard]] c10::MempoolId_t name_of(PoolId id) const;
  void forget(PoolId id);
  /// Pools without users that still have a name.
  [[nodiscard]] std::vector<PoolId> unused() const;

 private:
  using Key = std::pair<c10::DeviceIndex, c10::MempoolId_t>;

  struct Used {
    TorchPool pool;
    int users = 0;
  };

  struct Open {
    Key key;
    TorchPool pool;
    Filter filter;
  };

  using OpenPools = std::vector<Open>;

  Used& known(const Key& key) SPILLWAY_REQUIRES(mutex_);
  void update_open(const Key& key) SPILLWAY_REQUIRES(mutex_);
  void set_open(OpenPools open) SPILLWAY_REQUIRES(mutex_);

  std::atomic<size_t> open_count_{0};
  mutable Mutex mutex_;
  std::map<Key, Used> used_ SPILLWAY_GUARDED_BY(mutex_);
  std::shared_ptr<const OpenPools> open_ SPILLWAY_GUARDED_BY(mutex_) =
      std::make_shared<const OpenPools>();
  std::map<PoolId, c10::MempoolId_t> names_ SPILLWAY_GUARDED_BY(mutex_);
  std::uint64_t next_ SPILLWAY_GUARDED_BY(mutex_) = 1;
};

}  // namespace spillway
