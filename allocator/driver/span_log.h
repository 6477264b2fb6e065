// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "allocator/base/mutex.h"
#include "allocator/driver/handles.h"

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <vector>

namespace spillway::driver {

/// An interval of a stream's time.
struct Span {
  enum class Kind : std::uint8_t {
    kOut,        // a copy to the host
    kIn,         // a copy to the device
    kWait,       // the stream waited for another stream
    kMark,       // a point without length: relates the host's clock to the device's
    kOperator,   // work that an operator, or a backward node, submitted to the stream
    kKernel,     // a kernel that the program launched; see hooks/kernel_names
    kSaved,      // a point where a step saved `storage` at event `other` of its curve,
    kWanted,     // or used it again,
    kEnded,      // or reached the end of its backward pass; `storage` is the step's number
    kRecompute,  // recomputation of the storage
    kMapping,    // no work was submitted to the stream while the host mapped or released memory
    // a step with a budget, from its first saved storage to the end of its backward pass
    kStep,
  };

  Kind kind = Kind::kMark;
  DeviceId device{};
  std::uint64_t stream = 0;     // its handle
  std::uint64_t other = 0;      // kWait: handle of the stream waited for
  Bytes bytes;                  // of a copy
  TagId tag{};                  // its purpose, by Subject
  std::uint64_t storage = 0;    // likewise
  std::uint32_t name = 0;       // kOperator, kKernel: from number_span_name(); zero for none
  std::uint64_t submitted = 0;  // the host's steady clock, nanoseconds
  std::uint64_t begin = 0;      // device time, nanoseconds since the device's first span
  std::uint64_t end = 0;
};

/// Times the work of streams by the device's own events while it is on. While off, it costs one
/// relaxed load. While on, a span costs two recorded events, and the device is not waited for.
/// Streams that are being captured are not timed.
///
/// Threads: safe. One per process; never destroyed.
class SpanLog {
 public:
  SpanLog(const SpanLog&) = delete;
  SpanLog& operator=(const SpanLog&) = delete;

  static SpanLog& instance();

  /// Consumers of spans: reports receive all spans except those for plans, plans receive all except
  /// operators. Each receives the spans that began while it was on.
  enum class Reader : std::uint8_t { kReport = 1, kPlan = 2 };

  [[nodiscard]] static bool on() { return on_.load(std::memory_order_relaxed) != 0; }

  [[nodiscard]] static bool on(Reader reader) {
    return (on_.load(std::memory_order_relaxed) & static_cast<unsigned>(reader)) != 0;
  }

  static void start(Reader reader = Reader::kReport);

  /// Drops spans that were not taken, except kernels and spans for plans.
  void stop(Reader reader = Reader::kReport);

  /// Where the backward pass of a device's step ended (Span::Kind::kEnded).
  struct EndOfStep {
    DeviceId device{};
    std::uint64_t number = 0;
  };

  /// Blocks the host until the devices have passed the ends of all spans except kernels, or only
  /// that `step`, so that take() returns them. Stops after `most` of the host's time
  /// (driver::sleep_for), so that a hung device does not block the caller indefinitely.
  void wait(std::chrono::milliseconds most, std::optional<EndOfStep> step = std::nullopt);

  /// Spans that have ended and were not taken yet, except kernels; with `device`, only of that
  /// device.
  /// Stream: no host wait.
  std::vector<Span> take(Reader reader = Reader::kReport,
                         std::optional<DeviceId> device = std::nullopt);

  /// Likewise for kernels, which are timed whether the log is on or not, on the same clocks.
  std::vector<Span> take_kernels();
  void forget_kernels();

  /// Spans that were not timed, because too many were outstanding or the driver refused.
  [[nodiscard]] std::uint64_t dropped() const;

  /// Marks this point on a stream. `mark_again` marks the streams last marked, or last known to
  /// compute, one per device.
  void mark(const Device& device, Stream stream);
  void computes_on(const Device& device, Stream stream);
  void mark_again();

  /// A point of a step that a plan is made from. Returns whether it is timed.
  bool mark_step(const Device& device,
                 Stream stream,
                 Span::Kind kind,
                 std::uint64_t storage,
                 std::uint64_t event);

  /// Sets the purpose of this thread's spans for a scope.
  class Subject {
   public:
    Subject(TagId tag, std::uint64_t storage);
    ~Subject();
    Subject(const Subject&) = delete;
    Subject& operator=(const Subject&) = delete;

   private:
    const bool on_;
    TagId tag_{};  // of the enclosing scope
    std::uint64_t storage_ = 0;
  };

  /// A span that has not ended yet.
  struct Begun {
    Span span;
    CUevent event = nullptr;  // null if it is not timed
    unsigned readers = 0;
  };

  /// Times the work submitted to `stream` from begin() to end(), which must follow with the same
  /// device and stream. The caller may still add data to the begun span.
  /// Requires: the device's context is current.
  Begun begin(const Device& device, Stream stream, Span::Kind kind);
  /// Returns whether the span was timed and can be taken once the device has passed it.
  bool end(const Device& device, Stream stream, Begun begun);
  /// Called instead of end() if nothing was submitted.
  void drop(const Device& device, const Begun& begun);

  /// begin() and end() for a scope; not for kernels. Does nothing while the log is off.
  class Scope {
   public:
    Scope(
        const Device& device, Stream stream, Span::Kind kind, Bytes bytes, std::uint64_t other = 0);

    ~Scope() {
      if (begun_) instance().end(device_, stream_, *begun_);
    }

    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    const Device& device_;
    const Stream stream_;
    std::optional<Begun> begun_;
  };

 private:
  struct State;

  SpanLog();
  ~SpanLog();

  /// A timed event at this point; null if that is impossible.
  CUevent record(const Device& device, Stream stream, Span::Kind kind);
  void ended(const Device& device, const Begun& begun, CUevent end);
  std::vector<Span> take(Span::Kind kind, Reader reader, std::optional<DeviceId> device);
  void forget(Span::Kind kind, Reader reader);

  // bit per reader; not inline: one instance for all of Spillway's libraries
  static std::atomic<unsigned> on_;
  mutable Mutex mutex_;
  std::unique_ptr<State> state_ SPILLWAY_GUARDED_BY(mutex_);
};

}  // namespace spillway::driver
