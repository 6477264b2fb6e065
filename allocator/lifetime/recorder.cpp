// SPDX-License-Identifier: Apache-2.0
#include "allocator/lifetime/recorder.h"

#include "allocator/lifetime/trace_file.h"

#include <algorithm>
#include <chrono>
#include <deque>
#include <map>
#include <optional>

namespace spillway {
namespace {

std::uint64_t steady_now() {
  return static_cast<std::uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(
                                        std::chrono::steady_clock::now().time_since_epoch())
                                        .count());
}

}  // namespace

struct LifetimeRecorder::Recording {
  explicit Recording(const RecordingOptions& with)
      : options(with), now(with.now == nullptr ? steady_now : with.now), began(now()) {}

  LifetimeRecord::Moment moment() { return {++events, now() - began, counts.steps}; }

  void write(TraceEvent::Kind kind, const LifetimeRecord& record, std::uint64_t time) {
    if (!file) return;
    TraceEvent event;
    event.kind = kind;
    event.time = time;
    event.block = record.block;
    event.bytes = record.bytes;
    file->add(event, record.tag, record.stream, record.pool);
  }

  void finish(const LifetimeRecord& record) {
    if (options.most == 0) {
      ++counts.dropped;
      return;
    }
    if (finished.size() == options.most) {
      finished.pop_front();
      ++counts.dropped;
    }
    finished.push_back(record);
  }

  void die(std::map<std::uint64_t, LifetimeRecord>::iterator dying) {
    dying->second.death = moment();
    write(TraceEvent::Kind::kFree, dying->second, dying->second.death.time);
    finish(dying->second);
    live.erase(dying);
    ++counts.deaths;
  }

  const RecordingOptions options;
  std::uint64_t (*const now)();
  const std::uint64_t began;
  std::uint64_t events = 0;
  LifetimeCounts counts;
  std::map<std::uint64_t, LifetimeRecord> live;  // by address
  std::deque<LifetimeRecord> finished;
  std::optional<TraceFile> file;
};

std::atomic<bool> LifetimeRecorder::on_{false};

LifetimeRecorder::LifetimeRecorder() = default;
LifetimeRecorder::~LifetimeRecorder() = default;

LifetimeRecorder& LifetimeRecorder::instance() {
  static auto* const recorder = new LifetimeRecorder;
  return *recorder;
}

Status LifetimeRecorder::start(const RecordingOptions& options) {
  auto fresh = std::make_unique<Recording>(options);
  const Lock lock(mutex_);
  if (on()) {
    return SPILLWAY_ERROR(Code::kNotReady, "a recording is already running. End it first.");
  }
  if (!options.path.empty()) {
    fresh->file.emplace(options.device, options.granularity);
    SPILLWAY_RETURN_IF_ERROR(fresh->file->open(options.path));
  }
  recording_ = std::move(fresh);
  on_.store(true, std::memory_order_relaxed);
  MemoryEvents::subscribe(*this);
  return {};
}

Status LifetimeRecorder::stop() {
  const Lock lock(mutex_);
  if (!on()) return SPILLWAY_ERROR(Code::kNotReady, "no recording is running. Begin one first.");
  on_.store(false, std::memory_order_relaxed);
  MemoryEvents::unsubscribe(*this);
  if (!recording_->file) return {};
  Status closed = recording_->file->close();
  recording_->counts.unwritten = recording_->file->unwritten();
  recording_->file.reset();
  return closed;
}

void LifetimeRecorder::born(const BornBlock& block) {
  const Lock lock(mutex_);
  if (!on() || block.device != recording_->options.device) return;
  Recording& now = *recording_;
  // Its free was not reported: the block was freed through another path.
  if (const auto old = now.live.find(block.address); old != now.live.end()) now.die(old);
  LifetimeRecord record;
  record.block = now.counts.births++;
  record.bytes = block.requested;
  record.tag = block.tag;
  record.stream = block.stream;
  record.pool = block.pool;
  record.birth = record.last_use = now.moment();
  now.write(TraceEvent::Kind::kAllocate, record, record.birth.time);
  now.live.emplace(block.address, record);
}

void LifetimeRecorder::died(DeviceId device, std::uint64_t address) {
  const Lock lock(mutex_);
  if (!on() || device != recording_->options.device) return;
  const auto found = recording_->live.find(address);
  if (found != recording_->live.end()) recording_->die(found);
}

void LifetimeRecorder::used(DeviceId device, std::uint64_t address) {
  const Lock lock(mutex_);
  if (!on() || device != recording_->options.device) return;
  const auto found = recording_->live.find(address);
  if (found == recording_->live.end()) return;
  found->second.last_use = recording_->moment();
  ++recording_->counts.uses;
  recording_->write(TraceEvent::Kind::kUse, found->second, found->second.last_use.time);
}

void LifetimeRecorder::retagged(DeviceId device, std::uint64_t address, TagId tag) {
  const Lock lock(mutex_);
  if (!on() || device != recording_->options.device) return;
  const auto found = recording_->live.find(address);
  if (found == recording_->live.end() || found->second.tag == tag) return;
  found->second.tag = tag;
  recording_->write(TraceEvent::Kind::kRetag, found->second, recording_->moment().time);
}

void LifetimeRecorder::step_ended() {
  const Lock lock(mutex_);
  if (!on()) return;
  recording_->write(TraceEvent::Kind::kStep, {}, recording_->moment().time);
  ++recording_->counts.steps;
}

std::vector<LifetimeRecord> LifetimeRecorder::records() const {
  const Lock lock(mutex_);
  if (!recording_) return {};
  std::vector<LifetimeRecord> all(recording_->finished.begin(), recording_->finished.end());
  const auto finished = static_cast<std::ptrdiff_t>(all.size());
  for (const auto& [address, record] : recording_->live)
    all.push_back(record);
  std::sort(all.begin() + finished, all.end(), [](const auto& one, const auto& other) {
    return one.block < other.block;
  });
  return all;
}

LifetimeCounts LifetimeRecorder::counts() const {
  const Lock lock(mutex_);
  if (!recording_) return {};
  LifetimeCounts counts = recording_->counts;
  counts.live = recording_->live.size();
  return counts;
}

}  // namespace spillway
