// SPDX-License-Identifier: Apache-2.0
// Data of PyTorch's memory viewer: snapshots, and the events before them.
#include "torch_glue/cuda_allocator/allocator_stats.h"
#include "torch_glue/cuda_allocator/cuda_allocator.h"

#include <c10/cuda/CUDAFunctions.h>

#include <limits>

namespace spillway {

ccc::SnapshotInfo SpillwayAllocator::snapshot(c10::MempoolId_t pool, bool include_traces) {
  ccc::SnapshotInfo info;
  info.config_metadata = {};
  info.config_metadata.max_split_size = std::numeric_limits<size_t>::max();
  info.config_metadata.expandable_segments = true;
  for (size_t index = 0; index < devices_.size(); ++index) {
    auto* const runtime = devices_[index].load(std::memory_order_acquire);
    if (runtime == nullptr) continue;
    const auto device = static_cast<c10::DeviceIndex>(index);
    if (history_.on()) {
      report_mapping(device, *runtime, nullptr);
      history_.record({TraceEntry::SNAPSHOT, device, 0, 0, nullptr, {0, 0}});
    }
    for (auto& [segment, id] : torch_segments(device, runtime->heap())) {
      segment.owner_private_pool_id = pools_.name_of(id);
      const bool wanted = pool == c10::MempoolId_t{0, 0} || pool == segment.owner_private_pool_id;
      if (wanted) info.segments.push_back(std::move(segment));
    }
    pools_.describe_provided(device, pool, info.segments);
  }
  history_.fill(info, static_cast<size_t>(device_count_.load()), include_traces);
  return info;
}

void SpillwayAllocator::report_allocated(c10::DeviceIndex index,
                                         DeviceRuntime& runtime,
                                         void* at,
                                         size_t size,
                                         cudaStream_t stream,
                                         c10::MempoolId_t pool) {
  const StackRef stack = history_.gather(RecordContext::STATE);
  report_mapping(index, runtime, stack);
  const auto address = reinterpret_cast<size_t>(at);
  history_.keep(address, stack);
  history_.record({TraceEntry::ALLOC, index, address, size, stream, pool}, stack);
}

void SpillwayAllocator::report_freed(c10::DeviceIndex index, const HeapBlockInfo& block) {
  // Both before it is free, so that its next allocation is reported later. Fences stay with the
  // block, so that it can be reused at once.
  const StackRef stack = history_.gather(RecordContext::ALL);
  const auto address = static_cast<size_t>(block.at.address());
  const size_t size = block.requested.count();
  const c10::MempoolId_t pool = pools_.name_of(block.pool);
  history_.forget(address);
  history_.record({TraceEntry::FREE_REQUESTED, index, address, size, block.stream, pool}, stack);
  history_.record({TraceEntry::FREE_COMPLETED, index, address, size, block.stream, pool}, stack);
}

void SpillwayAllocator::report_mapping(c10::DeviceIndex index,
                                       DeviceRuntime& runtime,
                                       const StackRef& stack) {
  const std::uint64_t changes = runtime.heap().view().mapping_changes();
  MappedRanges::Changes found;
  {
    const Lock lock(mutex_);
    Mapping& known = mappings_[index];
    if (known.changes == changes) return;
    known.changes = changes;
    found = known.ranges.update(runtime.heap().view().segments());
  }
  for (const MappedRange& range : found.unmapped) {
    history_.record({TraceEntry::SEGMENT_UNMAP, index, range.at, range.size, range.stream, {0, 0}},
                    stack);
  }
  for (const MappedRange& range : found.mapped) {
    history_.record({TraceEntry::SEGMENT_MAP, index, range.at, range.size, range.stream, {0, 0}},
                    stack);
  }
}

void SpillwayAllocator::recordHistory(bool enabled,
                                      ccc::CreateContextFn recorder,
                                      size_t max_entries,
                                      ccc::RecordContext when,
                                      bool clear,
                                      const std::vector<std::string>& skip) {
  look_at_mappings();
  history_.configure(enabled, recorder, max_entries, when, clear, skip);
}

void SpillwayAllocator::attachAllocatorTraceTracker(ccc::AllocatorTraceTracker tracker) {
  look_at_mappings();
  history_.attach(std::move(tracker));
}

void SpillwayAllocator::look_at_mappings() {
  if (history_.on()) return;
  // Mappings before the first call are not events.
  const Lock lock(mutex_);
  for (size_t index = 0; index < devices_.size(); ++index) {
    auto* const runtime = devices_[index].load(std::memory_order_acquire);
    if (runtime == nullptr) continue;
    Mapping& known = mappings_[static_cast<c10::DeviceIndex>(index)];
    known.changes = runtime->heap().view().mapping_changes();
    known.ranges.update(runtime->heap().view().segments());
  }
}

bool SpillwayAllocator::isHistoryEnabled() {
  return history_.recording();
}

void SpillwayAllocator::recordAnnotation(
    const std::vector<std::pair<std::string, std::string>>& text) {
  history_.remark(c10::cuda::current_device(), text);
}

void SpillwayAllocator::pushCompileContext(std::string& name) {
  History::compilations().push_back(name);
}

void SpillwayAllocator::popCompileContext() {
  auto& open = History::compilations();
  if (!open.empty()) open.pop_back();
}

void SpillwayAllocator::setUserMetadata(const std::string& text) {
  History::user_metadata() = text;
}

std::string SpillwayAllocator::getUserMetadata() {
  return History::user_metadata();
}

c10::CachingDeviceAllocator::DeviceStats SpillwayAllocator::getDeviceStats(c10::DeviceIndex index) {
  auto stats = raw_stats(index);
  const Lock lock(mutex_);
  const auto base = stats_base_.find(index);
  if (base != stats_base_.end()) subtract_accumulated(stats, base->second);
  return stats;
}

c10::CachingDeviceAllocator::DeviceStats SpillwayAllocator::raw_stats(c10::DeviceIndex index) {
  const Heap& heap = device(index).heap();
  auto stats = torch_stats(heap.stats(), heap.view().stats_by_tier());
  const Lock lock(mutex_);
  keep_pool_peaks(stats, pool_peaks_[index]);
  const auto retries = retries_.find(index);
  if (retries != retries_.end()) stats.num_alloc_retries = retries->second;
  const auto errors = out_of_memory_.find(index);
  if (errors != out_of_memory_.end()) stats.num_ooms = errors->second;
  return stats;
}

void SpillwayAllocator::resetAccumulatedStats(c10::DeviceIndex index) {
  const auto now = raw_stats(index);
  const Lock lock(mutex_);
  stats_base_[index] = now;
}

void SpillwayAllocator::resetPeakStats(c10::DeviceIndex index) {
  device(index).heap().view().reset_peaks();
  const Lock lock(mutex_);
  pool_peaks_.erase(index);
}

}  // namespace spillway
