// SPDX-License-Identifier: Apache-2.0
#include "allocator/runtime/run_log.h"

#include "allocator/device/fork.h"
#include "allocator/driver/span_log.h"
#include "allocator/runtime/json_line.h"
#include "allocator/runtime/run_log_state.h"
#include "allocator/runtime/runtime.h"
#include "allocator/runtime/stats_page.h"

#include <fcntl.h>

#include <cerrno>
#include <chrono>
#include <system_error>
#include <utility>
#include <vector>

namespace spillway {
namespace {

constexpr std::uint64_t kLookEvery = 100'000'000;  // nanoseconds

/// A program may end long before the device has finished its last step, or the device may hang.
constexpr std::chrono::milliseconds kLastWork{1000};

/// The allocated blocks of all devices' heaps.
std::vector<std::pair<DeviceId, HeapBlockInfo>> allocated_blocks() {
  std::vector<std::pair<DeviceId, HeapBlockInfo>> blocks;
  for (const DeviceStats& each : Runtime::instance().stats(0).devices) {
    for (const HeapSegmentInfo& segment :
         Runtime::instance().devices().if_made(each.device)->heap().view().segments()) {
      for (const HeapBlockInfo& block : segment.blocks)
        if (block.allocated) blocks.emplace_back(each.device, block);
    }
  }
  return blocks;
}

}  // namespace

std::atomic<bool> RunLog::on_{false};

RunLog::RunLog() : state_(std::make_unique<RunLogState>()) {}

RunLog::~RunLog() = default;

RunLog& RunLog::instance() {
  static auto* const log = new RunLog;
  return *log;
}

Status RunLog::start(const Options& options) {
  watch_for_forks();
  auto fresh = std::make_unique<RunLogState>();
  const auto blocks = allocated_blocks();
  const Lock lock(mutex_);
  if (on()) {
    return SPILLWAY_ERROR(Code::kNotReady,
                          "a run log is already being written by this process. End it first.");
  }
  if (!options.page.empty()) SPILLWAY_RETURN_IF_ERROR(fresh->page.open(options.page));
  if (!options.log.empty()) {
    fresh->file = File(::open(options.log.c_str(),
                              O_WRONLY | O_CREAT | O_EXCL | O_APPEND | O_CLOEXEC | O_NOFOLLOW,
                              0600));
    if (!fresh->file.open()) {
      return SPILLWAY_ERROR(Code::kInvalidArgument,
                            options.log + ": the run log cannot be created (" +
                                std::generic_category().message(errno) +
                                "). Name a writable folder.");
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
  driver::SpanLog::start();
  on_.store(true, std::memory_order_relaxed);
  MemoryEvents::subscribe(*this);
  return {};
}

void RunLog::stop() {
  if (!on() || in_forked_child()) return;
  driver::SpanLog::instance().wait(kLastWork);
  write_out(When::kAtEnd);
  on_.store(false, std::memory_order_relaxed);
  MemoryEvents::unsubscribe(*this);
  driver::SpanLog::instance().stop();
  const Lock lock(mutex_);
  JsonLine(state_->text, "done").add(state_->time());
  state_->flush();
  state_->file = File();
  state_->page.close();
}

void RunLog::born(const BornBlock& block) {
  if (in_forked_child()) return;
  const Lock lock(mutex_);
  if (on()) state_->born(block.device, block.address, block.rounded, block.tag);
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

void RunLog::offloaded(const Move& move) {
  if (in_forked_child()) return;
  {
    const Lock lock(mutex_);
    if (!on() || !state_->detailed) return;
    const std::uint64_t region = state_->number(move.region);
    const std::uint64_t memory = state_->number(move.memory);
    JsonLine(state_->text, "offload")
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

void RunLog::was_fetched(std::uint64_t storage, DeviceId device, std::uint64_t address) {
  if (in_forked_child()) return;
  {
    const Lock lock(mutex_);
    if (!on() || !state_->detailed) return;
    JsonLine(state_->text, "fetch")
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

void RunLog::timed(const std::vector<driver::Span>& spans) {
  if (in_forked_child()) return;
  const Lock lock(mutex_);
  if (on()) state_->add(spans);
}

void RunLog::tag_step_ended(TagId tag, const TagStepStats& step) {
  if (in_forked_child()) return;
  const Lock lock(mutex_);
  if (!on()) return;
  const std::uint64_t name = state_->number(tag);
  JsonLine line(state_->text, "tagstep");
  line.add(state_->time()).add(step.step).add(name).begin();
  line.member("offloadable", step.offloadable)
      .member("offloaded", step.offloaded)
      .member("copied", step.copied)
      .member("fetched", step.fetched)
      .begin("skipped");
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
  const RuntimeStats stats = Runtime::instance().stats(StatsPageLayout::kMaxTags);
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
