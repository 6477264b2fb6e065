// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "allocator/base/mutex.h"
#include "allocator/device/device_runtime.h"
#include "torch_glue/base/compat.h"
#include "torch_glue/history/history.h"
#include "torch_glue/pools/captured_uses.h"
#include "torch_glue/pools/checkpoints.h"
#include "torch_glue/pools/pool_table.h"

#include <c10/cuda/CUDACachingAllocator.h>

#include <array>
#include <atomic>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

namespace spillway {

class SideStream;

namespace ccc = c10::cuda::CUDACachingAllocator;

/// PyTorch's CUDA allocator on Spillway's heaps, one heap per device.
///
/// Unsupported functions raise a c10::Error with the function's name and an alternative.
/// Threads: safe; takes no Python lock.
/// Ownership: one per process, never destroyed, because tensors are freed after exit handlers.
class SpillwayAllocator final : public compat::CudaAllocatorInterface {
 public:
  static SpillwayAllocator& instance();

  using ccc::CUDAAllocator::recordStream;

  /// The allocation function behind all of PyTorch's entry points. Throws OutOfMemoryError; null
  /// only for 0 bytes.
  void* allocate_on(c10::DeviceIndex index, size_t size, cudaStream_t stream);
  /// Frees a block. Returns false, without an exception or a change, if no allocated block starts
  /// at `at`.
  bool release(void* at);
  /// Records that work on `stream` also uses the block that contains `at`. The stream may belong to
  /// another device.
  void record_use(void* at, c10::cuda::CUDAStream stream);

  // c10::Allocator
  c10::DataPtr allocate(size_t size) override;
  c10::DeleterFnPtr raw_deleter() const override;
  void copy_data(void* to, const void* from, size_t size) const override;

  // c10::DeviceAllocator
  bool initialized() override;
  void emptyCache(c10::MempoolId_t pool) override;
  c10::CachingDeviceAllocator::DeviceStats getDeviceStats(c10::DeviceIndex device) override;
  void resetAccumulatedStats(c10::DeviceIndex device) override;
  void resetPeakStats(c10::DeviceIndex device) override;
  std::pair<size_t, size_t> getMemoryInfo(c10::DeviceIndex device) override;

  // CUDAAllocator: memory
  void* raw_alloc(size_t size) override;
  void* raw_alloc_with_stream(size_t size, cudaStream_t stream) override;
  void raw_delete(void* at) override;
  void init(int device_count) override;
  void recordStream(const c10::DataPtr& at, c10::cuda::CUDAStream stream) override;
  void* getBaseAllocation(void* at, size_t* size) override;
  void cacheInfo(c10::DeviceIndex device, size_t* largest) override;
  double getMemoryFraction(c10::DeviceIndex device) override;
  void setMemoryFraction(double fraction, c10::DeviceIndex device) override;
  std::vector<ccc::StreamSegmentSize> getExpandableSegmentSizes(c10::DeviceIndex device) override;
  void attachOutOfMemoryObserver(ccc::OutOfMemoryObserver observer) override;
  void enable(bool on) override;

  bool isEnabled() const override { return true; }

  std::string name() override { return "spillway"; }

  // CUDAAllocator: memory viewer (cuda_allocator_history.cpp)
  ccc::SnapshotInfo snapshot(c10::MempoolId_t pool, bool include_traces) override;
  void recordHistory(bool enabled,
                     ccc::CreateContextFn recorder,
                     size_t max_entries,
                     ccc::RecordContext when,
                     bool clear,
                     const std::vector<std::string>& skip) override;
  bool isHistoryEnabled() override;
  void recordAnnotation(const std::vector<std::pair<std::string, std::string>>& text) override;
  void pushCompileContext(std::string& name) override;
  void popCompileContext() override;
  void setUserMetadata(const std::string& text) override;
  std::string getUserMetadata() override;
  /// Trackers are called without a lock of ours, even if nothing is recorded.
  void attachAllocatorTraceTracker(ccc::AllocatorTraceTracker tracker) override;

  // CUDAAllocator: between devices and processes
  void enablePeerAccess(c10::DeviceIndex device, c10::DeviceIndex other) override;
  cudaError_t memcpyAsync(void* to,
                          int to_device,
                          const void* from,
                          int from_device,
                          size_t size,
                          cudaStream_t stream,
                          bool peer_access) override;
  ccc::ShareableHandle shareIpcHandle(void* at) override;
  std::shared_ptr<void> getIpcDevPtr(std::string handle) override;

  // CUDAAllocator: graphs and memory pools (cuda_allocator_pools.cpp)
  void beginAllocateToPool(c10::DeviceIndex device,
                           c10::MempoolId_t pool,
                           std::function<bool(cudaStream_t)> filter) override;
  void endAllocateToPool(c10::DeviceIndex device, c10::MempoolId_t pool) override;
  void releasePool(c10::DeviceIndex device, c10::MempoolId_t pool) override;
  int getPoolUseCount(c10::DeviceIndex device, c10::MempoolId_t pool) override;
  void createOrIncrefPool(c10::DeviceIndex device,
                          c10::MempoolId_t pool,
                          std::shared_ptr<ccc::CUDAAllocator> provider) override;
  void setUseOnOOM(c10::DeviceIndex device, c10::MempoolId_t pool, bool use) override;
  /// From now on no two blocks of the pool share physical memory.
  void setNoSplit(c10::DeviceIndex device, c10::MempoolId_t pool) override;
  bool checkPoolLiveAllocations(c10::DeviceIndex device,
                                c10::MempoolId_t pool,
                                const std::unordered_set<void*>& expected) override;
  std::shared_ptr<ccc::AllocatorState> getCheckpointState(c10::DeviceIndex device,
                                                          c10::MempoolId_t pool) override;
  ccc::CheckpointDelta setCheckpointPoolState(c10::DeviceIndex device,
                                              std::shared_ptr<ccc::AllocatorState> state) override;

  /// Whether the stream is being captured into a graph with a pool. A relaxed load if no pool is
  /// open.
  [[nodiscard]] bool captures(cudaStream_t stream) const;

 private:
  /// Throws NotImplementedError with the unsupported function and an alternative.
  [[noreturn]] static void absent(const char* what);

  SpillwayAllocator();
  ~SpillwayAllocator() override = default;

  DeviceRuntime& device(c10::DeviceIndex index);
  /// From the memory of the side stream's home.
  void* allocate_on_side(c10::DeviceIndex index, size_t size, SideStream& side);
  /// Allocates while a capture or a program may request a pool.
  void* allocate_with_pools(c10::DeviceIndex index,
                            DeviceRuntime& runtime,
                            size_t size,
                            cudaStream_t stream);
  /// Retries after an attempt failed with `why`. Returns a block from another source, or throws.
  void* allocate_again(c10::DeviceIndex index,
                       const TorchPool& pool,
                       size_t size,
                       cudaStream_t stream,
                       const Status& why);
  /// Allocates from memory that other pools release or lend.
  Result<void*> allocate_elsewhere(c10::DeviceIndex index,
                                   const TorchPool& pool,
                                   size_t size,
                                   cudaStream_t stream,
                                   const Status& why);
  /// Notifies observers, if any.
  void report_handed_out(c10::DeviceIndex index,
                         DeviceRuntime& runtime,
                         void* at,
                         size_t size,
                         cudaStream_t stream,
                         c10::MempoolId_t pool);
  bool release_now(void* at);
  static Result<void*> allocate_in(const TorchPool& pool,
                                   DeviceRuntime& runtime,
                                   size_t size,
                                   cudaStream_t stream);
  bool free_block(DeviceRuntime& runtime, void* at);
  /// The provider memory with an allocated block that contains `at`.
  std::shared_ptr<ProviderMemory> provider_of(void* at);
  /// Returns the memory of unused pools to their providers.
  void trim_providers();
  bool free_provided(ProviderMemory& memory, void* at);
  /// The allocated blocks of a pool, without those that only a checkpoint keeps.
  std::set<void*> pool_blocks(DeviceRuntime& runtime, PoolId pool);
  TorchPool heap_pool(c10::DeviceIndex device, c10::MempoolId_t name);
  [[noreturn]] void out_of_memory(c10::DeviceIndex index, size_t size, const Status& why);
  /// The device whose heap has the address `at`; null if there is none.
  DeviceRuntime* owner(const void* at);
  c10::CachingDeviceAllocator::DeviceStats raw_stats(c10::DeviceIndex index);

  // Adds to the history, if it is on.
  void report_allocated(c10::DeviceIndex index,
                        DeviceRuntime& runtime,
                        void* at,
                        size_t size,
                        cudaStream_t stream,
                        c10::MempoolId_t pool);
  void report_freed(c10::DeviceIndex index, const HeapBlockInfo& block);
  /// Reports mappings and unmappings since the last call.
  void report_mapping(c10::DeviceIndex index, DeviceRuntime& runtime, const StackRef& stack);
  void look_at_mappings();

  struct Mapping {
    std::uint64_t changes = 0;  // of the heap, at the last call
    MappedRanges ranges;
  };

  std::array<std::atomic<DeviceRuntime*>, C10_COMPILE_TIME_MAX_GPUS> devices_{};
  std::atomic<bool> initialized_{false};
  std::atomic<int> device_count_{0};
  History history_;
  PoolTable pools_;
  CapturedUses captured_uses_;
  Checkpoints checkpoints_;
  std::atomic<bool> any_provider_{false};
  Mutex mutex_;
  std::vector<ccc::OutOfMemoryObserver> observers_ SPILLWAY_GUARDED_BY(mutex_);
  std::map<c10::DeviceIndex, c10::CachingDeviceAllocator::DeviceStats> stats_base_
      SPILLWAY_GUARDED_BY(mutex_);
  // Of PyTorch's two pools, as queried so far; only the peaks count.
  std::map<c10::DeviceIndex, c10::CachingDeviceAllocator::DeviceStats> pool_peaks_
      SPILLWAY_GUARDED_BY(mutex_);
  std::map<c10::DeviceIndex, Mapping> mappings_ SPILLWAY_GUARDED_BY(mutex_);
  std::map<c10::DeviceIndex, std::int64_t> retries_ SPILLWAY_GUARDED_BY(mutex_);
  // Errors raised; the heap counts every attempt.
  std::map<c10::DeviceIndex, std::int64_t> out_of_memory_ SPILLWAY_GUARDED_BY(mutex_);
  std::vector<std::shared_ptr<ProviderMemory>> providers_ SPILLWAY_GUARDED_BY(mutex_);
};

/// Makes Spillway's heaps PyTorch's CUDA allocator from now on. A second call has no effect.
/// Errors: kNotReady if CUDA has started under another allocator; kInvalidArgument for the
/// environment.
Status use_allocator();

}  // namespace spillway
