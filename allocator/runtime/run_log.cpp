// SPDX-License-Identifier: Apache-2.0
#include "allocator/runtime/run_log.h"

#include "allocator/base/file.h"
#include "allocator/driver/span_log.h"
#include "allocator/runtime/fork.h"
#include "allocator/runtime/json_line.h"
#include "allocator/runtime/runtime.h"
#include "allocator/runtime/stats_page.h"
#include "allocator/tag/tag.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <map>
#include <set>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

namespace spillway {
namespace {

constexpr std::size_t kWriteAt = 1U << 16U;
/// So much is written of single events; afterwards steps alone go on.
constexpr std::uint64_t kMostDetail = 64ULL << 20U;
constexpr std::uint64_t kLookEvery = 100'000'000;  // nanoseconds

std::uint64_t host_now() {
  return static_cast<std::uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(
                                        std::chrono::steady_clock::now().time_since_epoch())
                                        .count());
}

using Address = std::pair<DeviceId, std::uint64_t>;

struct HashAddress {
  std::size_t operator()(const Address& address) const {
    return std::hash<std::uint64_t>()(address.second) ^
           (static_cast<std::size_t>(address.first) << 60U);
  }
};

std::string_view name_of(driver::Span::Kind kind) {
  switch (kind) {
    case driver::Span::Kind::kOut:
      return "out";
    case driver::Span::Kind::kIn:
      return "in";
    case driver::Span::Kind::kWait:
      return "wait";
    case driver::Span::Kind::kMark:
      break;
  }
  return "mark";
}

}  // namespace

struct RunLog::State {
  struct Stalls {
    std::uint64_t count = 0;
    std::uint64_t time = 0;
  };

  struct Block {
    std::uint64_t number = 0;
    Bytes bytes;
  };

  struct Live {
    Bytes now;
    Bytes peak;
  };

  File file;
  bool detailed = false;      // single events are written
  std::uint64_t written = 0;  // bytes
  std::string text;           // not written yet
  std::uint64_t began = 0;
  std::uint64_t steps = 0;
  std::uint64_t blocks = 0;
  std::unordered_map<Address, Block, HashAddress> live;
  std::map<DeviceId, Live> bytes;
  std::unordered_set<TagId> named;
  std::set<std::uint64_t> copy_streams;
  std::map<TagId, Stalls> stalls;
  StatsPage page;
  bool ours = true;

  [[nodiscard]] std::uint64_t time() const { return host_now() - began; }

  void flush() {
    std::string_view left = text;
    while (file.open() && !left.empty()) {
      const ssize_t done = ::write(file.number(), left.data(), left.size());
      if (done < 0 && errno == EINTR) continue;
      if (done <= 0) {
        // The disk is full, or gone: the log ends here, the job does not.
        file = File();
        detailed = false;
        break;
      }
      left.remove_prefix(static_cast<std::size_t>(done));
    }
    written += text.size();
    text.clear();
  }

  void filled() {
    if (text.size() < kWriteAt) return;
    flush();
    if (!detailed || written < kMostDetail) return;
    detailed = false;
    JsonLine(text, "full").add(time());
  }

  std::uint64_t number(TagId tag) {
    if (tag != TagId::kUntagged && named.insert(tag).second) {
      JsonLine(text, "tag").add(static_cast<std::uint64_t>(tag)).add(tag_name(tag));
    }
    return static_cast<std::uint64_t>(tag);
  }

  /// The number of the block at an address, zero for one that is not known.
  [[nodiscard]] std::uint64_t block_at(DeviceId device, std::uint64_t address) const {
    const auto found = live.find({device, address});
    return found == live.end() ? 0 : found->second.number;
  }

  void born(DeviceId device, std::uint64_t address, Bytes size, TagId tag) {
    died(device, address);  // its death was not told: the block went another way than it came
    const Block block{++blocks, size};
    live.emplace(Address{device, address}, block);
    Live& of = bytes[device];
    of.now += size;
    of.peak = std::max(of.peak, of.now);
    if (!detailed) return;
    const std::uint64_t tagged = number(tag);
    JsonLine(text, "new")
        .add(time())
        .add(block.number)
        .add(size)
        .add(tagged)
        .add(static_cast<std::uint64_t>(device));
    filled();
  }

  void died(DeviceId device, std::uint64_t address) {
    const auto found = live.find({device, address});
    if (found == live.end()) return;
    const Block block = found->second;
    live.erase(found);
    bytes[device].now -= block.bytes;
    if (!detailed) return;
    JsonLine(text, "free").add(time()).add(block.number);
    filled();
  }

  void add(const std::vector<driver::Span>& spans) {
    // A stream that copies has waited before: that is no stall.
    for (const driver::Span& span : spans) {
      if (span.kind == driver::Span::Kind::kOut || span.kind == driver::Span::Kind::kIn) {
        copy_streams.insert(span.stream);
      }
    }
    for (const driver::Span& span : spans)
      add(span);
  }

  void add(const driver::Span& span) {
    if (span.kind == driver::Span::Kind::kWait && !copy_streams.contains(span.stream)) {
      Stalls& of = stalls[span.tag];
      ++of.count;
      of.time += span.end - span.begin;
    }
    if (!detailed) return;
    const std::uint64_t tag = number(span.tag);
    JsonLine(text, name_of(span.kind))
        .add(span.submitted - began)
        .add(span.begin)
        .add(span.end)
        .add(static_cast<std::uint64_t>(span.device))
        .add(span.stream)
        .add(span.kind == driver::Span::Kind::kWait ? span.other : span.bytes.count())
        .add(tag)
        .add(span.storage);
    filled();
  }

  void write_page(const RuntimeStats& stats) {
    StatsPageLayout content{};
    content.steps = steps;
    content.ours = ours ? 1 : 0;
    content.emulated = !stats.devices.empty() && driver::emulated() ? 1 : 0;
    for (const DeviceStats& each : stats.devices) {
      if (content.devices == StatsPageLayout::kMostDevices) break;
      const Live known = bytes[each.device];
      content.device.at(content.devices++) = {
          ours ? (each.heap.live - each.heap.evicted).count() : known.now.count(),
          ours ? each.heap.live_peak.count() : known.peak.count(),
          each.heap.held.count(),
          (each.residency.away + each.heap.evicted).count(),
          each.host.registered.count(),
          each.host.registered_peak.count(),
          (each.residency.stashed + each.pauses.copied_out).count(),
          (each.residency.fetched + each.pauses.copied_in).count(),
          0,
          static_cast<std::uint64_t>(each.device)};
    }
    for (const TagStats& each : stats.tags) {
      if (content.tags == StatsPageLayout::kMostTags) break;
      StatsPageLayout::Tag& tag = content.tag.at(content.tags++);
      const std::string name = tag_name(each.tag);
      std::memcpy(tag.name.data(), name.data(), std::min(name.size(), tag.name.size() - 1));
      tag.moved = each.last.moved.count();
      tag.movable = each.last.movable.count();
      tag.stalls = stalls[each.tag].count;
      tag.stalled = stalls[each.tag].time;
    }
    page.write(content);
  }

  void write_state(std::string_view kind, const RuntimeStats& stats) {
    JsonLine line(text, kind);
    line.add(time()).add(steps).begin();
    line.member("host_syncs", stats.driver.host_syncs)
        .member("driver_allocations", stats.driver.allocations)
        .member("registrations", stats.driver.registrations)
        .begin("devices");
    for (const DeviceStats& each : stats.devices) {
      const Live known = bytes[each.device];
      line.begin(std::to_string(static_cast<int>(each.device)))
          .member("live", ours ? each.heap.live : known.now)
          .member("live_peak", ours ? each.heap.live_peak : known.peak)
          .member("held", each.heap.held)
          .member("held_peak", each.heap.held_peak)
          .member("evicted", each.heap.evicted)
          .member("away", each.residency.away)
          .member("pinned", each.host.registered)
          .member("pinned_peak", each.host.registered_peak)
          .member("copied_out", each.residency.stashed)
          .member("copied_in", each.residency.fetched)
          .member("paused_out", each.pauses.copied_out)
          .member("paused_in", each.pauses.copied_in)
          .member("fence_waits", each.heap.fence_waits)
          .member("out_of_memory", each.heap.out_of_memory)
          .begin("refused");
      for (std::size_t reason = 0; reason < each.host.refused.size(); ++reason) {
        line.member(pin_refusal_name(static_cast<PinRefusal>(reason)),
                    each.host.refused.at(reason));
      }
      line.end().end();
    }
    line.end().end();
  }
};

std::atomic<bool> RunLog::on_{false};

RunLog::RunLog() : state_(std::make_unique<State>()) {}

RunLog::~RunLog() = default;

RunLog& RunLog::instance() {
  static auto* const log = new RunLog;
  return *log;
}

namespace {

/// What lives in the heaps of all devices.
std::vector<std::pair<DeviceId, HeapBlockInfo>> live_blocks() {
  std::vector<std::pair<DeviceId, HeapBlockInfo>> blocks;
  for (const DeviceStats& each : Runtime::instance().stats().devices) {
    for (const HeapSegmentInfo& segment :
         Runtime::instance().device_if_made(each.device)->heap().segments()) {
      for (const HeapBlockInfo& block : segment.blocks)
        if (block.live) blocks.emplace_back(each.device, block);
    }
  }
  return blocks;
}

}  // namespace

Status RunLog::start(const Options& options) {
  watch_for_forks();
  auto fresh = std::make_unique<State>();
  const auto blocks = live_blocks();
  const Lock lock(mutex_);
  if (on()) return SPILLWAY_ERROR(Code::kNotReady, "this process writes a run log already");
  if (!options.page.empty()) SPILLWAY_RETURN_IF_ERROR(fresh->page.open(options.page));
  if (!options.log.empty()) {
    fresh->file = File(::open(options.log.c_str(),
                              O_WRONLY | O_CREAT | O_EXCL | O_APPEND | O_CLOEXEC | O_NOFOLLOW,
                              0600));
    if (!fresh->file.open()) {
      return SPILLWAY_ERROR(Code::kInvalidArgument,
                            options.log + ": cannot be made: " + std::strerror(errno));
    }
    fresh->detailed = true;
    fresh->text = options.about + "\n";
  }
  fresh->ours = options.ours;
  fresh->began = host_now();
  for (const auto& [device, block] : blocks)
    fresh->born(device, block.at.address(), block.size, block.tag);
  fresh->flush();
  state_ = std::move(fresh);
  driver::SpanLog::instance().start();
  on_.store(true, std::memory_order_relaxed);
  return {};
}

void RunLog::stop() {
  if (!on() || in_forked_child()) return;
  write_out(When::kAtEnd);
  on_.store(false, std::memory_order_relaxed);
  driver::SpanLog::instance().stop();
  const Lock lock(mutex_);
  JsonLine(state_->text, "done").add(state_->time());
  state_->flush();
  state_->file = File();
  state_->page.close();
}

void RunLog::born(DeviceId device, std::uint64_t address, Bytes bytes, TagId tag) {
  if (in_forked_child()) return;
  const Lock lock(mutex_);
  if (on()) state_->born(device, address, bytes, tag);
}

void RunLog::died(DeviceId device, std::uint64_t address) {
  if (in_forked_child()) return;
  const Lock lock(mutex_);
  if (on()) state_->died(device, address);
}

void RunLog::retagged(DeviceId device, std::uint64_t address, TagId tag) {
  if (in_forked_child()) return;
  const Lock lock(mutex_);
  const std::uint64_t block = state_->block_at(device, address);
  if (!on() || !state_->detailed || block == 0) return;
  const std::uint64_t tagged = state_->number(tag);
  JsonLine(state_->text, "retag").add(state_->time()).add(block).add(tagged);
}

void RunLog::moved(const Move& move) {
  if (in_forked_child()) return;
  {
    const Lock lock(mutex_);
    if (!on() || !state_->detailed) return;
    const std::uint64_t region = state_->number(move.region);
    const std::uint64_t memory = state_->number(move.memory);
    JsonLine(state_->text, "move")
        .add(state_->time())
        .add(move.storage)
        .add(state_->block_at(move.device, move.address))
        .add(move.bytes)
        .add(move.copied)
        .add(region)
        .add(memory);
    state_->filled();
  }
  look();
}

void RunLog::came_back(std::uint64_t storage, DeviceId device, std::uint64_t address) {
  if (in_forked_child()) return;
  {
    const Lock lock(mutex_);
    if (!on() || !state_->detailed) return;
    JsonLine(state_->text, "back")
        .add(state_->time())
        .add(storage)
        .add(state_->block_at(device, address));
    state_->filled();
  }
  look();
}

void RunLog::ended(std::uint64_t storage) {
  if (in_forked_child()) return;
  const Lock lock(mutex_);
  if (!on() || !state_->detailed) return;
  JsonLine(state_->text, "end").add(state_->time()).add(storage);
  state_->filled();
}

void RunLog::came_from(std::uint64_t storage, const std::string& made_by, const std::string& line) {
  if (in_forked_child()) return;
  const Lock lock(mutex_);
  if (!on() || !state_->detailed) return;
  JsonLine(state_->text, "from").add(storage).add(made_by).add(line);
  state_->filled();
}

void RunLog::tag_step_ended(TagId tag, const TagStepStats& step) {
  if (in_forked_child()) return;
  const Lock lock(mutex_);
  if (!on()) return;
  const std::uint64_t name = state_->number(tag);
  JsonLine line(state_->text, "tagstep");
  line.add(state_->time()).add(step.step).add(name).begin();
  line.member("movable", step.movable)
      .member("moved", step.moved)
      .member("copied", step.copied)
      .member("fetched", step.fetched)
      .begin("stayed");
  for (std::size_t reason = 0; reason < step.skipped.size(); ++reason) {
    const SkipCount& count = step.skipped[reason];
    if (count.storages == 0) continue;
    line.begin(skip_reason_name(static_cast<SkipReason>(reason)))
        .member("storages", count.storages)
        .member("bytes", count.bytes)
        .end();
  }
  line.end().end();
}

void RunLog::step_ended() {
  if (in_forked_child()) return;
  driver::SpanLog::instance().mark_again();
  write_out(When::kAtStep);
}

void RunLog::look() {
  std::uint64_t before = looked_.load(std::memory_order_relaxed);
  const std::uint64_t now = host_now();
  if (now < before + kLookEvery || !looked_.compare_exchange_strong(before, now)) return;
  write_out(When::kBetween);
}

void RunLog::write_out(When when) {
  const std::vector<driver::Span> timed = driver::SpanLog::instance().take();
  const RuntimeStats stats = Runtime::instance().stats();
  const Lock lock(mutex_);
  if (!on()) return;
  state_->add(timed);
  if (when == When::kAtStep) ++state_->steps;
  if (when != When::kBetween) {
    state_->write_state(when == When::kAtStep ? "step" : "last", stats);
  }
  state_->flush();
  if (state_->page.is_open()) state_->write_page(stats);
}

}  // namespace spillway
