// SPDX-License-Identifier: Apache-2.0
#include "allocator/runtime/run_log_state.h"

#include "allocator/base/utf8.h"
#include "allocator/driver/api.h"
#include "allocator/driver/handles.h"
#include "allocator/driver/span_names.h"
#include "allocator/runtime/json_line.h"
#include "allocator/runtime/runtime.h"
#include "allocator/tag/tag.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>

namespace spillway {
namespace {

constexpr std::size_t kWriteAt = 1U << 16U;
/// Size limit of single events; afterwards only steps are logged.
constexpr std::uint64_t kMaxDetail = 64ULL << 20U;

std::string_view name_of(driver::Span::Kind kind) {
  switch (kind) {
    case driver::Span::Kind::kOut:
      return "out";
    case driver::Span::Kind::kIn:
      return "in";
    case driver::Span::Kind::kWait:
      return "wait";
    case driver::Span::Kind::kOperator:
      return "op";
    case driver::Span::Kind::kKernel:
      return "launch";
    case driver::Span::Kind::kMark:
    case driver::Span::Kind::kSaved:  // these are for plans only
    case driver::Span::Kind::kWanted:
    case driver::Span::Kind::kEnded:
    case driver::Span::Kind::kRecompute:
    case driver::Span::Kind::kMapping:
    case driver::Span::Kind::kStep:
      break;
  }
  return "mark";
}

template <std::size_t kCount>
std::array<std::uint64_t, kCount> counts_of(const std::array<Bytes, kCount>& bytes) {
  std::array<std::uint64_t, kCount> counts{};
  for (std::size_t i = 0; i < kCount; ++i)
    counts.at(i) = bytes.at(i).count();
  return counts;
}

std::uint64_t amount_of(const driver::Span& span) {
  switch (span.kind) {
    case driver::Span::Kind::kWait:
      return span.other;
    case driver::Span::Kind::kOperator:
    case driver::Span::Kind::kKernel:
      return span.name;
    default:
      return span.bytes.count();
  }
}

}  // namespace

std::uint64_t host_now() {
  return static_cast<std::uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(
                                        std::chrono::steady_clock::now().time_since_epoch())
                                        .count());
}

void RunLogState::flush() {
  std::string_view left = text;
  while (file.open() && !left.empty()) {
    const ssize_t done = ::write(file.number(), left.data(), left.size());
    if (done < 0 && errno == EINTR) continue;
    if (done <= 0) {
      // The disk is full or gone: the log ends here, the job continues.
      file = File();
      detailed = false;
      break;
    }
    left.remove_prefix(static_cast<std::size_t>(done));
  }
  written_ += text.size();
  text.clear();
  if (!detailed || written_ < kMaxDetail) return;
  detailed = false;
  JsonLine(text, "full").add(time());
}

void RunLogState::filled() {
  if (text.size() >= kWriteAt) flush();
}

std::uint64_t RunLogState::number(TagId tag) {
  if (tag != TagId::kUntagged && named_.insert(tag).second) {
    JsonLine(text, "tag").add(static_cast<std::uint64_t>(tag)).add(tag_name(tag));
  }
  return static_cast<std::uint64_t>(tag);
}

std::uint64_t RunLogState::block_at(DeviceId device, std::uint64_t address) const {
  const auto found = live_.find({device, address});
  return found == live_.end() ? 0 : found->second.number;
}

void RunLogState::born(DeviceId device, std::uint64_t address, Bytes size, TagId tag) {
  died(device, address);  // its free was not reported: the block was freed through another path
  const Block block{++blocks_, size};
  live_.emplace(Address{device, address}, block);
  Live& of = bytes_[device];
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

void RunLogState::died(DeviceId device, std::uint64_t address) {
  const auto found = live_.find({device, address});
  if (found == live_.end()) return;
  const Block block = found->second;
  live_.erase(found);
  bytes_[device].now -= block.bytes;
  if (!detailed) return;
  JsonLine(text, "free").add(time()).add(block.number);
  filled();
}

void RunLogState::add(const std::vector<driver::Span>& spans) {
  for (const driver::Span& span : spans) {
    if (span.kind == driver::Span::Kind::kOut || span.kind == driver::Span::Kind::kIn) {
      copy_ends_.add(span);
    }
  }
  for (const driver::Span& span : spans)
    add(span);
}

void RunLogState::add(const driver::Span& span) {
  if (span.kind == driver::Span::Kind::kWait && !copy_ends_.copies(span.device, span.stream)) {
    const std::uint64_t stalled = copy_ends_.over(span) - span.begin;
    if (stalled > 0) {
      Stalls& of = stalls_[span.tag];
      ++of.count;
      of.time += stalled;
    }
  }
  if (!detailed) return;
  if (span.name != 0 && span_names_.insert(span.name).second) {
    JsonLine(text, "name").add(std::uint64_t{span.name}).add(driver::span_name(span.name));
  }
  const std::uint64_t tag = number(span.tag);
  JsonLine(text, name_of(span.kind))
      .add(span.submitted - began)
      .add(span.begin)
      .add(span.end)
      .add(static_cast<std::uint64_t>(span.device))
      .add(span.stream)
      .add(amount_of(span))
      .add(tag)
      .add(span.storage);
  filled();
}

Bytes RunLogState::capacity_of(DeviceId id) {
  const auto [found, fresh] = capacities_.try_emplace(id);
  const DeviceRuntime* const device = fresh ? Runtime::instance().devices().if_made(id) : nullptr;
  if (device != nullptr) {
    const auto memory = driver::memory_info(device->device());
    if (memory.ok()) found->second = memory.value().total;
  }
  return found->second;
}

void RunLogState::write_page(const RuntimeStats& stats) {
  StatsPageLayout content{};
  content.steps = steps;
  content.ours = ours ? 1 : 0;
  content.emulated = !stats.devices.empty() && driver::emulated() ? 1 : 0;
  for (const DeviceStats& each : stats.devices) {
    if (content.devices == StatsPageLayout::kMaxDevices) break;
    const Live known = bytes_[each.device];
    content.device.at(content.devices++) = {
        ours ? (each.heap.allocated - each.heap.evicted).count() : known.now.count(),
        ours ? each.heap.allocated_peak.count() : known.peak.count(),
        each.heap.reserved.count(),
        (each.residency.offloaded + each.heap.evicted).count(),
        each.host.registered.count(),
        each.host.registered_peak.count(),
        (each.residency.stashed + each.pauses.copied_out).count(),
        (each.residency.fetched + each.pauses.copied_in).count(),
        capacity_of(each.device).count(),
        counts_of(each.model_state.resident),
        counts_of(each.model_state.offloaded),
        static_cast<std::uint64_t>(each.device)};
  }
  for (const TagStats& each : stats.tags) {
    if (content.tags == StatsPageLayout::kMaxTags) break;
    StatsPageLayout::Tag& tag = content.tag.at(content.tags++);
    const std::string name = shown_tag(each.tag);
    utf8_prefix(name, tag.name.size() - 1).copy(tag.name.data(), tag.name.size() - 1);
    tag.offloaded = each.last.offloaded.count();
    tag.offloadable = each.last.offloadable.count();
    tag.stalls = stalls_[each.tag].count;
    tag.stalled = stalls_[each.tag].time;
  }
  content.cannot_help = static_cast<std::uint32_t>(stats.cannot_help.reason);
  content.cannot_help_bytes = stats.cannot_help.bytes.count();
  page.write(content);
}

void RunLogState::write_state(std::string_view kind, const RuntimeStats& stats) {
  JsonLine line(text, kind);
  line.add(time()).add(steps).begin();
  line.member("host_syncs", stats.driver.host_syncs)
      .member("driver_allocations", stats.driver.allocations)
      .member("registrations", stats.driver.registrations)
      .begin("cannot_help");
  const CannotHelp& why = stats.cannot_help;
  if (why.reason != HelplessReason::kNone) line.member(helpless_reason_name(why.reason), why.bytes);
  line.end().begin("devices");
  for (const DeviceStats& each : stats.devices) {
    const Live known = bytes_[each.device];
    line.begin(std::to_string(static_cast<int>(each.device)))
        .member("allocated", ours ? each.heap.allocated : known.now)
        .member("allocated_peak", ours ? each.heap.allocated_peak : known.peak)
        .member("reserved", each.heap.reserved)
        .member("reserved_peak", each.heap.reserved_peak)
        .member("evicted", each.heap.evicted)
        .member("offloaded", each.residency.offloaded)
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
      line.member(pin_refusal_name(static_cast<PinRefusal>(reason)), each.host.refused.at(reason));
    }
    line.end().end();
  }
  line.end().end();
}

namespace {

constexpr std::size_t kMax = 256;  // copies per stream that are remembered for waits

}  // namespace

void CopyEnds::add(const driver::Span& copy) {
  Queue& queue = queues_[{copy.device, copy.stream}];
  queue.push_back(copy);
  if (queue.size() > kMax) queue.pop_front();
}

bool CopyEnds::copies(DeviceId device, std::uint64_t stream) const {
  return queues_.contains({device, stream});
}

const driver::Span* CopyEnds::last(const Queue& queue,
                                   const driver::Span& wait,
                                   bool of_its_storage) {
  const auto found = std::find_if(queue.rbegin(), queue.rend(), [&](const driver::Span& copy) {
    const bool meant =
        !of_its_storage || (copy.kind == driver::Span::Kind::kIn && copy.storage == wait.storage);
    return meant && copy.submitted <= wait.submitted && copy.begin < wait.end;
  });
  return found == queue.rend() ? nullptr : &*found;
}

std::uint64_t CopyEnds::over(const driver::Span& wait) const {
  const auto source = queues_.find({wait.device, wait.other});
  if (source == queues_.end()) return wait.end;
  const driver::Span* copy =
      wait.storage != 0 ? last(source->second, wait, /*of_its_storage=*/true) : nullptr;
  if (copy == nullptr) copy = last(source->second, wait, /*of_its_storage=*/false);
  return copy == nullptr ? wait.begin : std::clamp(copy->end, wait.begin, wait.end);
}

}  // namespace spillway
