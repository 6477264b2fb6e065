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
#include <string>
#include <string_view>
#include <vector>

namespace spillway::driver {

/// A stretch of a stream's time.
struct Span {
  enum class Kind : std::uint8_t {
    kOut,        // a copy to the host
    kIn,         // a copy to the device
    kWait,       // the stream waited for another one
    kMark,       // a place, of no length: joins the host's time to the device's
    kOperator,   // what an operator, or a node of a backward pass, gave the stream to do
    kKernel,     // a kernel that the program launched; see hooks/launch_watch.h
    kSaved,      // a place, where a step saved `storage` at the place `other` of its curve,
    kWanted,     // or wanted it again,
    kEnded,      // or was at the end of its backward pass
    kRecompute,  // the storage was recomputed
    kStep,       // a step under a budget, from its first saved storage to its backward pass's end
  };

  Kind kind = Kind::kMark;
  DeviceId device{};
  std::uint64_t stream = 0;     // its handle
  std::uint64_t other = 0;      // kWait: handle of the stream that was waited for
  Bytes bytes;                  // of a copy
  TagId tag{};                  // what it was for, as Subject says
  std::uint64_t storage = 0;    // the same
  std::uint32_t name = 0;       // kOperator, kKernel: number_span_name()'s; zero for none
  std::uint64_t submitted = 0;  // the host's steady clock, nanoseconds
  std::uint64_t begin = 0;      // the device's time, nanoseconds since its first span
  std::uint64_t end = 0;
};

/// A number, never zero, for the name of an operator or kernel; and the name again. Threads: safe.
std::uint32_t number_span_name(std::string_view name);
std::string span_name(std::uint32_t number);

/// Times what streams do, by the device's own events, while it is on. Off, it costs one relaxed
/// load. On, a span costs two recorded events; nothing waits for the device. Nothing is timed on a
/// stream that is being captured into a graph.
///
/// Threads: safe. One for the process; never destroyed.
class SpanLog {
 public:
  SpanLog(const SpanLog&) = delete;
  SpanLog& operator=(const SpanLog&) = delete;

  static SpanLog& instance();

  /// Who reads spans: reports all of them but those of plans, plans all of them but operators. Each
  /// gets those that began while it was on.
  enum class Reader : std::uint8_t { kReport = 1, kPlan = 2 };

  [[nodiscard]] static bool on() { return on_.load(std::memory_order_relaxed) != 0; }

  [[nodiscard]] static bool on(Reader reader) {
    return (on_.load(std::memory_order_relaxed) & static_cast<unsigned>(reader)) != 0;
  }

  static void start(Reader reader = Reader::kReport);

  /// What has not been taken is forgotten, but for kernels and what is for plans.
  void stop(Reader reader = Reader::kReport);

  /// Blocks the host until the devices have reached the ends of all spans but kernels, so that
  /// take() returns them, or until it has slept for `most` of the host's time (driver::sleep_for).
  /// For callers that must not wait indefinitely for a device that hangs.
  void wait(std::chrono::milliseconds most);

  /// Spans that have ended and were not taken yet, but for kernels; with `device`, of that one.
  /// Stream: no host wait.
  std::vector<Span> take(Reader reader = Reader::kReport,
                         std::optional<DeviceId> device = std::nullopt);

  /// The same for kernels, which are timed whether the log is on or not, on the same clocks.
  std::vector<Span> take_kernels();
  void forget_kernels();

  /// Spans that were not timed, because too many had not ended or the driver refused.
  [[nodiscard]] std::uint64_t dropped() const;

  /// Marks this place on a stream; `mark_again` on those that were marked last, or that computed
  /// last as someone knew, one per device.
  void mark(const Device& device, Stream stream);
  void computes_on(const Device& device, Stream stream);
  void mark_again();

  /// A place of a step that a plan is made from.
  void mark_step(const Device& device,
                 Stream stream,
                 Span::Kind kind,
                 std::uint64_t storage,
                 std::uint64_t place);

  /// What this thread's spans are for until the scope ends.
  class Subject {
   public:
    Subject(TagId tag, std::uint64_t storage);
    ~Subject();
    Subject(const Subject&) = delete;
    Subject& operator=(const Subject&) = delete;

   private:
    const bool on_;
    TagId tag_{};  // around it
    std::uint64_t storage_ = 0;
  };

  /// A span whose end is still to come.
  struct Begun {
    Span span;
    CUevent event = nullptr;  // null where it is not timed
    unsigned readers = 0;
  };

  /// Times what is submitted to `stream` from begin() to end(), which must follow, with the same
  /// device and stream. What is begun may still be told more. Requires: the device's context is
  /// current.
  Begun begin(const Device& device, Stream stream, Span::Kind kind);
  /// Whether the span was timed and can be taken once the device has passed it.
  bool end(const Device& device, Stream stream, Begun begun);
  /// In the place of end(), where nothing was submitted after all.
  void drop(const Device& device, const Begun& begun);

  /// The same, while it lives; not of a kernel. Where the log is off, nothing is begun.
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

  /// A timed event at this place, null where there can be none.
  CUevent record(const Device& device, Stream stream, Span::Kind kind);
  void ended(const Device& device, const Begun& begun, CUevent end);
  std::vector<Span> take(Span::Kind kind, Reader reader, std::optional<DeviceId> device);
  void forget(Span::Kind kind, Reader reader);

  static std::atomic<unsigned> on_;  // readers; not inline: one for all of Spillway's libraries
  mutable Mutex mutex_;
  std::unique_ptr<State> state_ SPILLWAY_GUARDED_BY(mutex_);
};

}  // namespace spillway::driver
