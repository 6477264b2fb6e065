// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "allocator/base/mutex.h"
#include "allocator/driver/handles.h"

#include <cstdint>
#include <deque>
#include <utility>
#include <vector>

namespace spillway::driver {

class Timeline;

/// A point on a stream: everything submitted there before it. Trivially copyable; borrows its
/// Timeline, which is never destroyed while a Fence to it lives.
struct Fence {
  Timeline* timeline = nullptr;
  std::uint64_t point = 0;

  /// False for a default-made fence, which has always passed.
  [[nodiscard]] bool set() const { return timeline != nullptr; }

  friend bool operator==(Fence, Fence) = default;
};

/// The order of one stream, as fences. Events are pooled: a marker costs one record, no creation in
/// steady state. Threads: safe. Ownership: borrows the stream.
class Timeline {
 public:
  Timeline(const Device& device, Stream stream) : device_(device), stream_(stream) {}

  ~Timeline();
  Timeline(const Timeline&) = delete;
  Timeline& operator=(const Timeline&) = delete;

  [[nodiscard]] Stream stream() const { return stream_; }

  [[nodiscard]] DeviceId device() const { return device_.id; }

  /// Marks this place on the stream. Stream: no wait. Errors: kDriver; kNotReady while the stream
  /// is being captured into a graph, where a marker would become part of the graph.
  ///
  /// Where the stream has been destroyed, here and wherever a marker was promised: the host waits
  /// for the whole device instead, and everything on this timeline has passed then (counted in
  /// Counters::lost_streams).
  Result<Fence> mark();

  /// Whether events of this device can be recorded on the stream. Requires: work that is to be
  /// ordered by this timeline has not begun, so that a stream of another device is never taken for
  /// one that was destroyed. Stream: no wait; a marker at the first time. Errors: kInvalidArgument
  /// for what is no stream of this device; kDriver.
  Status verify();

  /// A fence for this place that costs nothing now: its marker is recorded, once for all that were
  /// promised since the last one, when the first of them is asked about or waited for. Until then
  /// it has not passed. Cannot fail; where the marker cannot be recorded, the asking does.
  Fence promise();

  /// Makes `waiter` wait for `fence`, on the device. Nothing to do for a fence of `waiter`'s own
  /// stream or one that is known to have passed. Stream: no host wait. Errors: kDriver; kNotReady
  /// while `waiter`, or the stream that a marker was promised of, is being captured.
  static Status wait(Stream waiter, Fence fence);

  /// Makes `later` wait, on the device, for everything this stream was given so far: as a wait for
  /// mark(), which nothing can ask about afterwards. Requires: `later` is not being captured.
  /// Stream: no host wait. Errors: as mark().
  Status order_before(Stream later);

  /// Gives this stream work, by `submit()`, behind everything that `earlier` was given so far, and
  /// marks the place behind it: for one lock what order_before(), `submit` and mark() are in a row.
  /// Requires: `earlier` is of this device, this stream is not being captured, and `submit` uses no
  /// timeline. Stream: no host wait. Errors: as mark(), and those of `submit`.
  template <typename Submit>
  Result<Fence> mark_after(Stream earlier, Submit&& submit) {
    const Lock lock(mutex_);
    const CurrentDevice current(*device_.api, device_.context);
    if (earlier != stream_) SPILLWAY_RETURN_IF_ERROR(order(earlier, stream_));
    SPILLWAY_RETURN_IF_ERROR(std::forward<Submit>(submit)());
    return record(IfGone::kWaitForDevice);
  }

  /// Whether the device has reached `fence`, as far as one query per outstanding marker can tell.
  /// No host wait.
  static bool passed(Fence fence);

  /// Blocks the host until `fence` has passed; counted in Counters::host_syncs. Other threads may
  /// use the timeline meanwhile. Errors: kDriver.
  static Status wait_sync(Fence fence);

 private:
  struct Marker {
    std::uint64_t point;
    CUevent event;
  };

  enum class IfGone { kRefuse, kWaitForDevice };

  /// Errors: kInvalidArgument where the stream is gone and that is refused.
  Result<Fence> record(IfGone gone) SPILLWAY_REQUIRES(mutex_);
  /// A spare event that marks this place on `stream` now; null where all has passed instead,
  /// because the stream is gone.
  Result<CUevent> record_event(Stream stream, IfGone gone) SPILLWAY_REQUIRES(mutex_);
  /// Makes `later` wait for everything that `earlier` was given so far.
  Status order(Stream earlier, Stream later) SPILLWAY_REQUIRES(mutex_);
  Result<CUevent> pass_all_sync() SPILLWAY_REQUIRES(mutex_);
  /// Records the marker that `fence` was promised, if it is missing.
  Status keep_promise(Fence fence, IfGone gone) SPILLWAY_REQUIRES(mutex_);
  void retire_passed() SPILLWAY_REQUIRES(mutex_);
  void retire_oldest() SPILLWAY_REQUIRES(mutex_);
  [[nodiscard]] CUevent event_for(std::uint64_t point) SPILLWAY_REQUIRES(mutex_);

  const Device device_;
  const Stream stream_;
  Mutex mutex_;
  std::uint64_t next_ SPILLWAY_GUARDED_BY(mutex_) = 1;  // of the marker that is recorded next
  std::uint64_t passed_ SPILLWAY_GUARDED_BY(mutex_) = 0;
  std::deque<Marker> outstanding_ SPILLWAY_GUARDED_BY(mutex_);  // points without a gap, in order
  std::vector<CUevent> spare_ SPILLWAY_GUARDED_BY(mutex_);
  // Of markers that have passed while a host thread may still be waiting for one of them.
  std::vector<CUevent> waited_for_ SPILLWAY_GUARDED_BY(mutex_);
  int host_waiters_ SPILLWAY_GUARDED_BY(mutex_) = 0;
  bool verified_ SPILLWAY_GUARDED_BY(mutex_) = false;
};

}  // namespace spillway::driver
