// SPDX-License-Identifier: Apache-2.0
#include "torch_glue/history/history.h"

#include <algorithm>
#include <optional>

namespace spillway {
namespace {

/// Converts clock ticks to the microseconds of snapshots.
template <typename Entry>
void to_microseconds(std::vector<Entry>& entries,
                     const std::function<time_t(c10::approx_time_t)>& nanoseconds) {
  for (Entry& entry : entries)
    entry.time_.t_ = nanoseconds(entry.time_.approx_t_) / 1000;
}

}  // namespace

void History::configure(bool enabled,
                        c10::CachingDeviceAllocator::CreateContextFn recorder,
                        size_t max_entries,
                        RecordContext when,
                        bool clear,
                        const std::vector<std::string>& skip) {
  TORCH_CHECK_VALUE(
      !enabled || when == RecordContext::NEVER || recorder != nullptr,
      "Spillway: recordHistory with stack traces needs a context recorder, and it is null. Pass "
      "one, or RecordContext::NEVER.");
  std::unordered_set<int> skipped;
  for (const std::string& action : skip)
    skipped.insert(c10::CachingDeviceAllocator::parseTraceEntryAction(action));

  std::map<c10::DeviceIndex, Ring<TraceEntry>> old;  // freed without the lock
  {
    const Lock lock(mutex_);
    if (!enabled || clear) {
      old.swap(events_);
      remarks_.clear();
    }
    most_ = max_entries;
    for (auto& [device, ring] : events_)
      ring.resize(most_);
    remarks_.resize(most_);
    skipped_ = std::move(skipped);
    recorder_ = enabled ? recorder : nullptr;
    when_ = enabled ? when : RecordContext::NEVER;
    recording_ = enabled;
    on_ = enabled || trackers_ != nullptr;
  }
}

void History::attach(Tracker tracker) {
  const Lock lock(mutex_);
  auto all = trackers_ ? *trackers_ : std::vector<Tracker>();
  all.push_back(std::move(tracker));
  trackers_ = std::make_shared<const std::vector<Tracker>>(std::move(all));
  on_ = true;
}

StackRef History::gather(RecordContext level) const {
  if (when_.load(std::memory_order_relaxed) < level) return nullptr;
  const auto recorder = recorder_.load();
  return recorder == nullptr ? nullptr : recorder();
}

void History::record(const MemoryEvent& event, const StackRef& stack) {
  const bool with_stack = when_.load(std::memory_order_relaxed) >= RecordContext::ALLOC;
  const auto& within = compilations();
  TraceEntry entry(event.action,
                   event.device,
                   event.at,
                   event.size,
                   event.stream,
                   event.pool,
                   c10::getApproximateTime(),
                   with_stack ? stack : nullptr,
                   within.empty() ? std::string() : within.back(),
                   user_metadata());
  std::shared_ptr<const std::vector<Tracker>> trackers;
  std::optional<TraceEntry> gone;  // its stack is freed without the lock
  {
    const Lock lock(mutex_);
    trackers = trackers_;
    if (recording_ && skipped_.count(event.action) == 0) {
      const auto [ring, made] = events_.try_emplace(event.device);
      if (made) ring->second.resize(most_);
      gone = ring->second.push(entry);
    }
  }
  if (!trackers) return;
  for (const Tracker& tracker : *trackers)
    tracker(entry);
}

void History::keep(size_t block, StackRef stack) {
  if (!stack) return;
  const Lock lock(mutex_);
  stacks_[block].swap(stack);
}

void History::forget(size_t block) {
  StackRef gone;
  const Lock lock(mutex_);
  const auto found = stacks_.find(block);
  if (found == stacks_.end()) return;
  gone.swap(found->second);
  stacks_.erase(found);
}

void History::remark(c10::DeviceIndex device,
                     const std::vector<std::pair<std::string, std::string>>& text) {
  if (!recording()) return;
  Remark remark(device, c10::getApproximateTime());
  for (const auto& [name, value] : text)
    remark.recordUserMetadata(name, value);
  const Lock lock(mutex_);
  remarks_.push(std::move(remark));
}

std::vector<std::string>& History::compilations() {
  thread_local std::vector<std::string> open;
  return open;
}

std::string& History::user_metadata() {
  thread_local std::string text;
  return text;
}

std::vector<std::vector<TraceEntry>> History::traces(size_t devices) const {
  std::vector<std::vector<TraceEntry>> all(devices);
  const Lock lock(mutex_);
  for (const auto& [device, ring] : events_) {
    const auto index = static_cast<size_t>(device);
    if (index < devices) all[index] = ring.in_order();
  }
  return all;
}

void History::fill(c10::cuda::CUDACachingAllocator::SnapshotInfo& info,
                   size_t devices,
                   bool traces) const {
  {
    const Lock lock(mutex_);
    for (auto& segment : info.segments) {
      size_t at = segment.address;
      for (auto& block : segment.blocks) {
        const auto found = block.allocated ? stacks_.find(at) : stacks_.end();
        if (found != stacks_.end()) block.context_when_allocated = found->second;
        at += block.size;
      }
    }
    if (traces) info.external_annotations = remarks_.in_order();
  }
  info.device_traces.resize(devices);
  if (!traces) return;
  info.device_traces = this->traces(devices);
  const auto nanoseconds = clock_.makeConverter();
  for (auto& events : info.device_traces)
    to_microseconds(events, nanoseconds);
  to_microseconds(info.external_annotations, nanoseconds);
}

namespace {

/// The parts of `ranges` that no range of the same stream in `without` covers. Both are sorted.
std::vector<MappedRange> less(const std::vector<MappedRange>& ranges,
                              const std::vector<MappedRange>& without) {
  std::vector<MappedRange> left;
  for (const MappedRange& range : ranges) {
    CUdeviceptr from = range.at;
    for (const MappedRange& other : without) {
      if (other.stream != range.stream || other.end() <= from || other.at >= range.end()) continue;
      if (other.at > from) left.push_back({from, other.at - from, range.stream});
      from = other.end();
    }
    if (from < range.end()) left.push_back({from, range.end() - from, range.stream});
  }
  return left;
}

}  // namespace

MappedRanges::Changes MappedRanges::update(const std::vector<HeapSegmentInfo>& now) {
  std::vector<MappedRange> ranges;
  for (const HeapSegmentInfo& segment : now)
    ranges.push_back({segment.at.address(), segment.size.count(), segment.stream});
  std::sort(ranges.begin(), ranges.end(), [](const MappedRange& a, const MappedRange& b) {
    return a.at < b.at;
  });
  Changes changes{less(ranges_, ranges), less(ranges, ranges_)};
  ranges_ = std::move(ranges);
  return changes;
}

}  // namespace spillway
