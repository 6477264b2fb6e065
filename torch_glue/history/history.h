// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "allocator/base/mutex.h"
#include "allocator/heap/heap.h"
#include "torch_glue/history/ring.h"

#include <c10/cuda/CUDACachingAllocator.h>

#include <atomic>
#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

namespace spillway {

using c10::CachingDeviceAllocator::RecordContext;
using c10::CachingDeviceAllocator::TraceEntry;
using StackRef = std::shared_ptr<c10::GatheredContext>;

/// An event of the allocator's memory. For OOM, `at` is the device's free memory.
struct MemoryEvent {
  TraceEntry::Action action;
  c10::DeviceIndex device;
  size_t at;
  size_t size;
  void* stream;
  c10::MempoolId_t pool;
};

/// The data of PyTorch's memory viewer: the last events of each device with stacks from torch's
/// recorder, and the stacks of allocated blocks. Bounded: a ring per device, and one stack per
/// allocated block.
///
/// Threads: safe. Recorders and trackers are called, and stacks freed, without a lock of ours.
class History {
 public:
  using Remark = c10::CachingDeviceAllocator::AnnotationEntry;
  using Tracker = c10::CachingDeviceAllocator::AllocatorTraceTracker;

  /// As torch.cuda.memory._record_memory_history. Throws c10::Error if stacks are requested without
  /// a recorder; nothing has changed then.
  void configure(bool enabled,
                 c10::CachingDeviceAllocator::CreateContextFn recorder,
                 size_t max_entries,
                 RecordContext when,
                 bool clear,
                 const std::vector<std::string>& skip);

  void attach(Tracker tracker);

  /// Whether events are recorded; checked on every allocation.
  [[nodiscard]] bool on() const { return on_.load(std::memory_order_relaxed); }

  [[nodiscard]] bool recording() const { return recording_.load(std::memory_order_relaxed); }

  /// The present stack; null if stacks are not recorded at `level`.
  [[nodiscard]] StackRef gather(RecordContext level) const;

  void record(const MemoryEvent& event, const StackRef& stack = nullptr);

  /// Stores the stack of an allocated block until it is freed.
  void keep(size_t block, StackRef stack);
  void forget(size_t block);

  /// Sets the user's annotation of a device's events from now on (record_function).
  void remark(c10::DeviceIndex device,
              const std::vector<std::pair<std::string, std::string>>& text);

  /// The compilations in progress on this thread, innermost last, and the thread's annotation.
  static std::vector<std::string>& compilations();
  static std::string& user_metadata();

  /// Adds the stacks of allocated blocks to `info`. With `traces`, also adds the events and
  /// annotations so far, oldest first, for that many devices.
  void fill(c10::cuda::CUDACachingAllocator::SnapshotInfo& info, size_t devices, bool traces) const;

 private:
  [[nodiscard]] std::vector<std::vector<TraceEntry>> traces(size_t devices) const;

  std::atomic<bool> on_{false};
  std::atomic<bool> recording_{false};
  std::atomic<RecordContext> when_{RecordContext::NEVER};
  std::atomic<c10::CachingDeviceAllocator::CreateContextFn> recorder_{nullptr};
  mutable c10::ApproximateClockToUnixTimeConverter clock_;  // conversion does not change its state
  mutable Mutex mutex_;
  std::map<c10::DeviceIndex, Ring<TraceEntry>> events_ SPILLWAY_GUARDED_BY(mutex_);
  Ring<Remark> remarks_ SPILLWAY_GUARDED_BY(mutex_);
  size_t most_ SPILLWAY_GUARDED_BY(mutex_) = 1;
  std::unordered_set<int> skipped_ SPILLWAY_GUARDED_BY(mutex_);
  std::unordered_map<size_t, StackRef> stacks_ SPILLWAY_GUARDED_BY(mutex_);
  std::shared_ptr<const std::vector<Tracker>> trackers_ SPILLWAY_GUARDED_BY(mutex_);
};

/// A contiguous range of device memory that a heap has mapped for a stream.
struct MappedRange {
  CUdeviceptr at;
  std::uint64_t size;
  CUstream stream;

  [[nodiscard]] CUdeviceptr end() const { return at + size; }
};

/// Detects the ranges that a heap has mapped and unmapped since the last call.
/// Threads: guarded by the owner's lock.
class MappedRanges {
 public:
  struct Changes {
    std::vector<MappedRange> unmapped;
    std::vector<MappedRange> mapped;
  };

  /// The difference to the last call's segments; both are in address order.
  Changes update(const std::vector<HeapSegmentInfo>& now);

 private:
  std::vector<MappedRange> ranges_;
};

}  // namespace spillway
