// SPDX-License-Identifier: Apache-2.0
#include "allocator/device/step_recording.h"

#include <algorithm>
#include <utility>

namespace spillway {
namespace {

using driver::Span;
using driver::SpanLog;

/// Recordings in progress: there is one log for all devices.
Mutex recordings_mutex;
int recordings SPILLWAY_GUARDED_BY(recordings_mutex) = 0;

constexpr auto kNoStorage = StepTimes::kNoStorage;

/// Measured steps that the device has not finished. The host waits at more: it may be any number of
/// steps ahead.
constexpr std::size_t kMostLate = 8;

/// Bytes per second, both ways, for a step without copies: half of a PCIe 5 link, so that plans do
/// not overestimate it.
constexpr double kUnknownRate = 25e9;

double seconds(std::uint64_t nanoseconds) {
  return static_cast<double>(nanoseconds) * 1e-9;
}

/// A line through copies of all sizes: seconds = fixed + bytes * slope, by least squares.
struct CopyTimes {
  double count = 0;
  double bytes = 0;
  double seconds = 0;
  double squares = 0;
  double products = 0;

  void add(double size, double time) {
    count += 1;
    bytes += size;
    seconds += time;
    squares += size * size;
    products += size * time;
  }

  [[nodiscard]] double rate() const { return seconds > 0 ? bytes / seconds : 0; }

  /// The constant part of a copy's time; zero if it cannot be determined.
  [[nodiscard]] double fixed() const {
    const double spread = count * squares - bytes * bytes;
    if (count < 2 || spread <= 1e-6 * count * squares) return 0;
    const double slope = (count * products - bytes * seconds) / spread;
    const double at_zero = (seconds - slope * bytes) / count;
    return slope > 0 ? std::clamp(at_zero, 0.0, seconds / count) : 0;
  }

  /// Without the constant part.
  [[nodiscard]] double rate_besides(double each) const {
    const double moving = seconds - each * count;
    return moving > 0 ? bytes / moving : rate();
  }
};

LinkRates link_of(const CopyTimes& out, const CopyTimes& in) {
  LinkRates link;
  link.per_copy = std::max(out.fixed(), in.fixed());
  link.out = out.rate_besides(std::min(link.per_copy, out.fixed()));
  link.in = in.rate_besides(std::min(link.per_copy, in.fixed()));
  const double either = std::max({link.out, link.in});
  if (link.out <= 0) link.out = either > 0 ? either : kUnknownRate;
  if (link.in <= 0) link.in = either > 0 ? either : kUnknownRate;
  return link;
}

bool is_pause(const Span& span) {
  return span.kind == Span::Kind::kWait || span.kind == Span::Kind::kRecompute ||
         span.kind == Span::Kind::kMapping;
}

/// Iterates over a stream's spans in order, excluding pauses.
class Computing {
 public:
  /// Compute seconds until `time`; later calls have later times.
  [[nodiscard]] double until(std::uint64_t time) const {
    // Within a pause there is no compute.
    const std::uint64_t now = std::max(time, end_);
    return seconds(now - std::min(now, origin_ + paused_));
  }

  void begin(std::uint64_t time) { origin_ = end_ = time; }

  void pause(std::uint64_t begin, std::uint64_t end) {
    const std::uint64_t from = std::max(begin, end_);
    if (end <= from) return;
    paused_ += end - from;
    end_ = end;
  }

 private:
  std::uint64_t origin_ = 0;
  std::uint64_t paused_ = 0;
  std::uint64_t end_ = 0;  // of the last pause
};

/// The recomputation time of each storage, without other pauses. Spans of a stream are nested.
void add_recomputes(const std::vector<Span>& pauses, std::vector<double>& recompute) {
  std::vector<const Span*> open;
  const auto charge = [&](const Span& span, double amount) {
    if (span.kind != Span::Kind::kRecompute) return;
    if (recompute.size() <= span.storage) recompute.resize(span.storage + 1);
    recompute[span.storage] += amount;
  };
  for (const Span& span : pauses) {
    while (!open.empty() && open.back()->end < span.end)
      open.pop_back();
    const double length = seconds(span.end - span.begin);
    charge(span, length);
    if (!open.empty()) charge(*open.back(), -length);
    open.push_back(&span);
  }
}

bool is_copy(const Span& span) {
  return span.kind == Span::Kind::kOut || span.kind == Span::Kind::kIn;
}

/// Whether a span began after that mark. At one time of the device the order of submission counts.
bool follows(const Span& span, const Span& mark) {
  return span.begin != mark.begin ? span.begin > mark.begin : span.submitted > mark.submitted;
}

LinkRates link_of(const std::vector<Span>& spans) {
  CopyTimes out;
  CopyTimes in;
  for (const Span& span : spans) {
    if (!is_copy(span)) continue;
    (span.kind == Span::Kind::kOut ? out : in)
        .add(static_cast<double>(span.bytes.count()), seconds(span.end - span.begin));
  }
  return link_of(out, in);
}

}  // namespace

std::optional<StepTimes> step_times_of(std::vector<Span> spans) {
  const auto first = std::find_if(
      spans.begin(), spans.end(), [](const Span& span) { return span.kind == Span::Kind::kSaved; });
  if (first == spans.end()) return std::nullopt;
  const std::uint64_t stream = first->stream;
  StepTimes times;
  times.link = link_of(spans);
  std::erase_if(spans, [&](const Span& span) { return span.stream != stream || is_copy(span); });
  // An enclosing span comes before its contents, and a pause before the mark at its end.
  std::stable_sort(spans.begin(), spans.end(), [](const Span& left, const Span& right) {
    return left.begin != right.begin ? left.begin < right.begin : left.end > right.end;
  });

  Computing computing;
  std::vector<Span> pauses;
  bool ended = false;
  for (const Span& span : spans) {
    if (is_pause(span)) {
      computing.pause(span.begin, span.end);
      pauses.push_back(span);
      continue;
    }
    if (times.marks.empty()) computing.begin(span.begin);
    const double now = computing.until(span.begin);
    times.end = now;
    if (span.kind == Span::Kind::kEnded) {
      ended = true;
    } else {
      times.marks.push_back({span.other, now, span.storage, span.kind == Span::Kind::kWanted});
    }
  }
  add_recomputes(pauses, times.recompute);
  return ended ? std::optional(std::move(times)) : std::nullopt;
}

std::vector<Span> take_step(std::vector<Span>& spans) {
  const Span* end = nullptr;
  for (const Span& span : spans)
    if (span.kind == Span::Kind::kEnded && (end == nullptr || span.begin < end->begin)) end = &span;
  if (end == nullptr) return {};
  const Span ended = *end;
  std::uint64_t begin = 0;
  for (const Span& span : spans) {
    const bool begins = span.kind == Span::Kind::kSaved && span.storage == kNoStorage;
    if (begins && !follows(span, ended)) begin = std::max(begin, span.begin);
  }
  std::vector<Span> step;
  std::erase_if(spans, [&](const Span& span) {
    if (follows(span, ended)) return false;
    if (span.begin >= begin) step.push_back(span);
    return true;
  });
  return step;
}

void StepRecording::begin(driver::Stream stream) {
  keep_spans(SpanLog::instance().take(SpanLog::Reader::kPlan, device_.id));
  {
    const Lock lock(mutex_);
    if (measured_.empty()) spans_.clear();  // of steps whose measurement was given up
  }
  turn_on();
  {
    const driver::CurrentDevice current(*device_.api, device_.context);
    const Lock lock(mutex_);
    step_.emplace(Step{stream, SpanLog::instance().begin(device_, stream, Span::Kind::kStep)});
  }
  mark(stream, Span::Kind::kSaved, kNoStorage);
}

void StepRecording::follow() {
  turn_off();
}

/// Ends the running step if it followed a plan.
void StepRecording::end_step() {
  const driver::CurrentDevice current(*device_.api, device_.context);
  const Lock lock(mutex_);
  if (!step_) return;
  step_->begun.span.other = ++steps_;
  SpanLog::instance().end(device_, step_->stream, step_->begun);
  step_.reset();
}

void StepRecording::keep_spans(const std::vector<Span>& spans) {
  const Lock lock(mutex_);
  for (const Span& span : spans) {
    if (span.kind == Span::Kind::kStep) {
      taken_.emplace_back(span.other, seconds(span.end - span.begin));
    } else {
      spans_.push_back(span);
    }
  }
}

std::vector<StepRecording::Duration> StepRecording::take_durations() {
  const Lock lock(mutex_);
  std::vector<Duration> taken;
  for (const auto& [number, seconds] : std::exchange(taken_, {}))
    taken.push_back({steps_ - number, seconds});
  return taken;
}

void StepRecording::forget_step() {
  const Lock lock(mutex_);
  if (step_) SpanLog::instance().drop(device_, step_->begun);
  step_.reset();
}

void StepRecording::mark(driver::Stream stream, Span::Kind kind, std::size_t storage) {
  SpanLog::instance().mark_step(device_, stream, kind, storage, curve_.event());
  const Lock lock(mutex_);
  stream_ = stream;
}

void StepRecording::saved(std::size_t storage, driver::Stream stream) {
  mark(stream, Span::Kind::kSaved, storage);
}

void StepRecording::used(std::size_t storage, driver::Stream stream) {
  mark(stream, Span::Kind::kWanted, storage);
}

void StepRecording::end() {
  end_step();
  if (!on()) return;
  std::optional<driver::Stream> stream;
  {
    const Lock lock(mutex_);
    stream = stream_;
  }
  if (stream) {
    const Lock lock(mutex_);
    if (SpanLog::instance().mark_step(device_, *stream, Span::Kind::kEnded, steps_, curve_.event()))
      measured_.push_back(steps_);
  }
  turn_off();
}

void StepRecording::stop() {
  forget_step();
  turn_off();
}

void StepRecording::turn_on() {
  const Lock lock(recordings_mutex);
  if (!on_.exchange(true) && recordings++ == 0) SpanLog::start(SpanLog::Reader::kPlan);
}

void StepRecording::turn_off() {
  const Lock lock(recordings_mutex);
  if (on_.exchange(false) && --recordings == 0) {
    SpanLog::instance().stop(SpanLog::Reader::kPlan);
  }
}

std::vector<StepRecording::Measured> StepRecording::take(bool waits,
                                                         std::chrono::milliseconds most) {
  SpanLog& log = SpanLog::instance();
  // The oldest of many only: the device then has work while the host goes on.
  std::optional<SpanLog::EndOfStep> oldest;
  {
    const Lock lock(mutex_);
    waits = waits && !measured_.empty() && measured_.back() == steps_;
    if (measured_.size() >= kMostLate) oldest = {device_.id, measured_.front()};
  }
  if (waits) {
    log.wait(most);
  } else if (oldest) {
    log.wait(most, oldest);
  }
  keep_spans(log.take(SpanLog::Reader::kPlan, device_.id));
  const Lock lock(mutex_);
  std::vector<Measured> taken;
  while (!measured_.empty()) {
    std::vector<Span> step = take_step(spans_);
    if (step.empty()) break;
    const auto end = std::find_if(
        step.begin(), step.end(), [](const Span& span) { return span.kind == Span::Kind::kEnded; });
    const std::uint64_t number = end->storage;
    const std::size_t steps_ago = steps_ - number;
    while (!measured_.empty() && measured_.front() <= number)
      measured_.pop_front();
    if (auto times = step_times_of(std::move(step)))
      taken.push_back({steps_ago, *std::move(times)});
  }
  return taken;
}

}  // namespace spillway
