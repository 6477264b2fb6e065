// SPDX-License-Identifier: Apache-2.0
#include "allocator/driver/span_log.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <optional>
#include <set>
#include <utility>

namespace spillway::driver {
namespace {

/// Maximum outstanding or untaken spans of a device, and as many kernels.
constexpr std::size_t kMax = 1U << 16U;

/// The driver returns times as a float of milliseconds: this far from their origin they are exact
/// to a fraction of a microsecond.
constexpr double kNewOriginAfter = 2000;

struct Purpose {
  TagId tag{};
  std::uint64_t storage = 0;
};

thread_local Purpose purpose;

std::uint64_t host_now() {
  return static_cast<std::uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(
                                        std::chrono::steady_clock::now().time_since_epoch())
                                        .count());
}

bool can_be_timed(const Api& api, Stream stream) {
  CUstreamCaptureStatus capture = CU_STREAM_CAPTURE_STATUS_NONE;
  return api.StreamIsCapturing(stream.handle(), &capture) == CUDA_SUCCESS &&
         capture == CU_STREAM_CAPTURE_STATUS_NONE;
}

constexpr std::size_t kReaders = 2;

std::size_t index_of(SpanLog::Reader reader) {
  return reader == SpanLog::Reader::kReport ? 0 : 1;
}

/// The active readers that receive a span of this kind.
unsigned readers_of(Span::Kind kind, unsigned on) {
  const auto report = static_cast<unsigned>(SpanLog::Reader::kReport);
  const auto plan = static_cast<unsigned>(SpanLog::Reader::kPlan);
  switch (kind) {
    case Span::Kind::kKernel:
      return report;  // independent of whether it is on
    case Span::Kind::kOperator:
    case Span::Kind::kMark:
      return on & report;
    case Span::Kind::kSaved:
    case Span::Kind::kWanted:
    case Span::Kind::kEnded:
    case Span::Kind::kRecompute:
    case Span::Kind::kMapping:
    case Span::Kind::kStep:
      return on & plan;
    case Span::Kind::kOut:
    case Span::Kind::kIn:
    case Span::Kind::kWait:
      break;
  }
  return on;
}

}  // namespace

struct SpanLog::State {
  struct Pending {
    Span span;
    CUevent begin;
    CUevent end;
    unsigned readers;
  };

  struct Queue {
    std::deque<Pending> pending;
    std::array<std::vector<Span>, kReaders> ended;

    [[nodiscard]] bool full() const {
      return pending.size() + std::max(ended[0].size(), ended[1].size()) >= kMax;
    }

    void end(const Pending& each) {
      for (const Reader reader : {Reader::kReport, Reader::kPlan}) {
        if ((each.readers & static_cast<unsigned>(reader)) != 0)
          ended.at(index_of(reader)).push_back(each.span);
      }
    }
  };

  struct Clock {
    explicit Clock(const Device& of) : device(of) {}

    Device device;
    CUevent origin = nullptr;  // owned
    double offset = 0;         // of the origin, milliseconds since the first one
    std::optional<Stream> marked;
    Queue kernels;
    Queue others;
    std::vector<CUevent> spare;

    Queue& of(Span::Kind kind) { return kind == Span::Kind::kKernel ? kernels : others; }

    /// Milliseconds since the first origin; none if the event has not passed.
    std::optional<double> at(CUevent event) const {
      float since = 0;
      if (device.api->EventElapsedTime(&since, origin, event) != CUDA_SUCCESS) return std::nullopt;
      return offset + static_cast<double>(since);
    }

    bool resolve(Pending& each) {
      if (device.api->EventQuery(each.end) != CUDA_SUCCESS) return false;
      const auto begin = at(each.begin);
      const auto end = at(each.end);
      if (!begin || !end) return false;
      // A stream's first work may have begun before the first origin was reached.
      each.span.begin = static_cast<std::uint64_t>(std::llround(std::max(*begin, 0.0) * 1e6));
      each.span.end = static_cast<std::uint64_t>(std::llround(std::max(*end, 0.0) * 1e6));
      if (each.begin != each.end) spare.push_back(each.begin);
      if (*end - offset > kNewOriginAfter) {
        spare.push_back(std::exchange(origin, each.end));
        offset = *end;
      } else {
        spare.push_back(each.end);
      }
      return true;
    }

    /// Whether the device has not passed the end of that step, or else of all. A stream's spans end
    /// in order, so that the last one of each stream counts.
    [[nodiscard]] bool behind(const std::optional<EndOfStep>& step) const {
      std::set<std::uint64_t> streams;
      return std::any_of(others.pending.rbegin(), others.pending.rend(), [&](const Pending& each) {
        const bool ends = each.span.kind == Span::Kind::kEnded;
        const bool counts = step ? ends && each.span.storage == step->number
                                 : streams.insert(each.span.stream).second;
        return counts && device.api->EventQuery(each.end) == CUDA_ERROR_NOT_READY;
      });
    }

    /// A stream's spans end in order: the device may reach a later one between two queries.
    void resolve(Queue& queue) {
      std::deque<Pending> left;
      std::set<std::uint64_t> late;  // streams
      for (Pending& each : queue.pending) {
        if (!late.contains(each.span.stream) && resolve(each)) {
          queue.end(each);
        } else {
          late.insert(each.span.stream);
          left.push_back(each);
        }
      }
      queue.pending = std::move(left);
    }
  };

  std::map<DeviceId, Clock> clocks;
  std::uint64_t dropped = 0;
};

std::atomic<unsigned> SpanLog::on_{0};

SpanLog::SpanLog() : state_(std::make_unique<State>()) {}

SpanLog::~SpanLog() = default;

SpanLog& SpanLog::instance() {
  static auto* const log = new SpanLog;
  return *log;
}

void SpanLog::start(Reader reader) {
  on_.fetch_or(static_cast<unsigned>(reader), std::memory_order_relaxed);
}

void SpanLog::stop(Reader reader) {
  on_.fetch_and(~static_cast<unsigned>(reader), std::memory_order_relaxed);
  if (reader == Reader::kReport) forget(Span::Kind::kMark, reader);
}

void SpanLog::wait(std::chrono::milliseconds most, std::optional<EndOfStep> step) {
  const auto behind = [&] {
    const Lock lock(mutex_);
    return std::any_of(state_->clocks.begin(), state_->clocks.end(), [&](const auto& each) {
      if (step && step->device != each.first) return false;
      const State::Clock& clock = each.second;
      const CurrentDevice current(*clock.device.api, clock.device.context);
      const OutsideCaptures outside(*clock.device.api);
      return clock.behind(step);
    });
  };
  constexpr std::chrono::milliseconds kPause{1};
  for (std::chrono::milliseconds slept{0}; behind() && slept < most; slept += kPause)
    sleep_for(kPause);
}

void SpanLog::forget_kernels() {
  forget(Span::Kind::kKernel, Reader::kReport);
}

void SpanLog::forget(Span::Kind kind, Reader reader) {
  const Lock lock(mutex_);
  for (auto& [id, clock] : state_->clocks) {
    State::Queue& queue = clock.of(kind);
    std::deque<State::Pending> left;
    for (State::Pending& each : queue.pending) {
      each.readers &= ~static_cast<unsigned>(reader);
      if (each.readers != 0) {
        left.push_back(each);
        continue;
      }
      clock.spare.push_back(each.end);
      if (each.begin != each.end) clock.spare.push_back(each.begin);
    }
    queue.pending = std::move(left);
    queue.ended.at(index_of(reader)).clear();
  }
}

CUevent SpanLog::record(const Device& device, Stream stream, Span::Kind kind) {
  if (!can_be_timed(*device.api, stream)) return nullptr;
  const Lock lock(mutex_);
  State::Clock& clock = state_->clocks.try_emplace(device.id, device).first->second;
  const auto fresh = [&]() -> CUevent {
    CUevent event = nullptr;
    if (clock.of(kind).full()) return nullptr;
    if (!clock.spare.empty()) {
      event = clock.spare.back();
      clock.spare.pop_back();
    } else if (device.api->EventCreate(&event, CU_EVENT_DEFAULT) != CUDA_SUCCESS) {
      return nullptr;
    }
    if (device.api->EventRecord(event, stream.handle()) == CUDA_SUCCESS) return event;
    clock.spare.push_back(event);
    return nullptr;
  };
  if (clock.origin == nullptr) clock.origin = fresh();
  CUevent event = clock.origin == nullptr ? nullptr : fresh();
  if (event == nullptr) ++state_->dropped;
  return event;
}

void SpanLog::ended(const Device& device, const Begun& begun, CUevent end) {
  const Lock lock(mutex_);
  State::Clock& clock = state_->clocks.at(device.id);
  Span span = begun.span;
  span.device = device.id;
  if (end != nullptr) {
    clock.of(span.kind).pending.push_back({span, begun.event, end, begun.readers});
  } else {
    clock.spare.push_back(begun.event);
  }
}

std::vector<Span> SpanLog::take(Reader reader, std::optional<DeviceId> device) {
  return take(Span::Kind::kMark, reader, device);
}

std::vector<Span> SpanLog::take_kernels() {
  return take(Span::Kind::kKernel, Reader::kReport, std::nullopt);
}

std::vector<Span> SpanLog::take(Span::Kind kind, Reader reader, std::optional<DeviceId> device) {
  std::vector<Span> spans;
  const Lock lock(mutex_);
  for (auto& [id, clock] : state_->clocks) {
    if (device && *device != id) continue;
    const CurrentDevice current(*clock.device.api, clock.device.context);
    const OutsideCaptures outside(*clock.device.api);
    // Both lists are resolved for either caller: a time is exact only near the origin.
    clock.resolve(clock.kernels);
    clock.resolve(clock.others);
    std::vector<Span>& ended = clock.of(kind).ended.at(index_of(reader));
    spans.insert(spans.end(), ended.begin(), ended.end());
    ended.clear();
  }
  return spans;
}

std::uint64_t SpanLog::dropped() const {
  const Lock lock(mutex_);
  return state_->dropped;
}

void SpanLog::mark(const Device& device, Stream stream) {
  const CurrentDevice current(*device.api, device.context);
  const Begun here = begin(device, stream, Span::Kind::kMark);
  if (here.event == nullptr) return;
  ended(device, here, here.event);
  computes_on(device, stream);
}

bool SpanLog::mark_step(const Device& device,
                        Stream stream,
                        Span::Kind kind,
                        std::uint64_t storage,
                        std::uint64_t event) {
  const CurrentDevice current(*device.api, device.context);
  Begun here = begin(device, stream, kind);
  if (here.event == nullptr) return false;
  here.span.storage = storage;
  here.span.other = event;
  ended(device, here, here.event);
  return true;
}

void SpanLog::computes_on(const Device& device, Stream stream) {
  const Lock lock(mutex_);
  state_->clocks.try_emplace(device.id, device).first->second.marked = stream;
}

void SpanLog::mark_again() {
  std::vector<std::pair<Device, Stream>> marked;
  {
    const Lock lock(mutex_);
    for (const auto& [id, clock] : state_->clocks)
      if (clock.marked) marked.emplace_back(clock.device, *clock.marked);
  }
  for (const auto& [device, stream] : marked)
    mark(device, stream);
}

SpanLog::Subject::Subject(TagId tag, std::uint64_t storage) : on_(SpanLog::on()) {
  if (!on_) return;
  tag_ = purpose.tag;
  storage_ = purpose.storage;
  purpose = {tag, storage};
}

SpanLog::Subject::~Subject() {
  if (on_) purpose = {tag_, storage_};
}

SpanLog::Begun SpanLog::begin(const Device& device, Stream stream, Span::Kind kind) {
  Begun begun;
  begun.readers = readers_of(kind, on_.load(std::memory_order_relaxed));
  if (begun.readers == 0) return begun;
  begun.span.kind = kind;
  begun.span.stream = reinterpret_cast<std::uint64_t>(stream.handle());
  begun.span.submitted = host_now();
  begun.span.tag = purpose.tag;
  begun.span.storage = purpose.storage;
  begun.event = record(device, stream, kind);
  return begun;
}

bool SpanLog::end(const Device& device, Stream stream, Begun begun) {
  if (begun.event == nullptr) return false;
  CUevent end = record(device, stream, begun.span.kind);
  ended(device, begun, end);
  return end != nullptr;
}

void SpanLog::drop(const Device& device, const Begun& begun) {
  if (begun.event != nullptr) ended(device, begun, nullptr);
}

SpanLog::Scope::Scope(
    const Device& device, Stream stream, Span::Kind kind, Bytes bytes, std::uint64_t other)
    : device_(device), stream_(stream) {
  if (!on()) return;
  begun_ = instance().begin(device_, stream_, kind);
  begun_->span.other = other;
  begun_->span.bytes = bytes;
}

}  // namespace spillway::driver
