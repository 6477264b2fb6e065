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

/// A point on a stream, after everything submitted before it. Trivially copyable; borrows its
/// Timeline, which outlives all its fences.
struct Fence {
  Timeline* timeline = nullptr;
  std::uint64_t point = 0;

  /// False for a default-constructed fence, which counts as passed.
  [[nodiscard]] bool set() const { return timeline != nullptr; }

  friend bool operator==(Fence, Fence) = default;
};

/// The order of one stream, as fences. Events are pooled: a marker costs one record, and no
/// creation in steady state.
/// Threads: safe.
/// Ownership: borrows the stream.
class Timeline {
 public:
  Timeline(const Device& device, Stream stream) : device_(device), stream_(stream) {}

  ~Timeline();
  Timeline(const Timeline&) = delete;
  Timeline& operator=(const Timeline&) = delete;

  [[nodiscard]] Stream stream() const { return stream_; }

  [[nodiscard]] DeviceId device() const { return device_.id; }

  /// Marks this point on the stream.
  /// Stream: no wait.
  /// Errors: kDriver; kNotReady while the stream is being captured into a graph, because the marker
  /// would become part of the graph.
  ///
  /// If the stream has been destroyed, here or before a promised marker is recorded, the host waits
  /// for the whole device instead. Everything on this timeline has passed then (counted in
  /// Counters::lost_streams).
  Result<Fence> mark();

  /// Checks whether events of this device can be recorded on the stream.
  /// Requires: no work that this timeline must order has begun. A stream of another device is thus
  /// never mistaken for a destroyed one.
  /// Stream: no wait; records a marker the first time.
  /// Errors: kInvalidArgument if it is not a stream of this device; kDriver.
  Status verify();

  /// A fence for this point at no immediate cost. Its marker is recorded when one of the fences
  /// promised since the last marker is queried or waited for, once for all of them. Until then it
  /// has not passed. Cannot fail; if the marker cannot be recorded, the query fails.
  Fence promise();

  /// Makes `waiter` wait for `fence` on the device. Does nothing for a fence of `waiter`'s own
  /// stream, or one that is known to have passed.
  /// Stream: no host wait.
  /// Errors: kDriver; kNotReady while `waiter`, or the stream of a promised marker, is being
  /// captured.
  static Status wait(Stream waiter, Fence fence);

  /// Makes `later` wait, on the device, for everything submitted to this stream so far. Like
  /// waiting for mark(), but without a fence to query later.
  /// Requires: `later` is not being captured.
  /// Stream: no host wait.
  /// Errors: as mark().
  Status order_before(Stream later);

  /// Submits work to this stream by `submit()`, after everything submitted to `earlier` so far, and
  /// marks the point after it. Does the work of order_before(), `submit` and mark() under one lock.
  /// Requires: `earlier` belongs to this device, this stream is not being captured, and `submit`
  /// uses no timeline.
  /// Stream: no host wait.
  /// Errors: as mark(), and those of `submit`.
  template <typename Submit>
  Result<Fence> mark_after(Stream earlier, Submit&& submit) {
    const Lock lock(mutex_);
    const CurrentDevice current(*device_.api, device_.context);
    if (earlier != stream_) SPILLWAY_RETURN_IF_ERROR(order(earlier, stream_));
    SPILLWAY_RETURN_IF_ERROR(std::forward<Submit>(submit)());
    return record(IfGone::kWaitForDevice);
  }

  /// Whether the device has reached `fence`, by one query per outstanding marker. No host wait.
  static bool passed(Fence fence);

  /// Blocks the host until `fence` has passed; counted in Counters::host_syncs. Other threads may
  /// use the timeline meanwhile.
  /// Errors: kDriver.
  static Status wait_sync(Fence fence);

 private:
  struct Marker {
    std::uint64_t point;
    CUevent event;
  };

  enum class IfGone { kRefuse, kWaitForDevice };

  /// Errors: kInvalidArgument if the stream is destroyed and `gone` refuses that.
  Result<Fence> record(IfGone gone) SPILLWAY_REQUIRES(mutex_);
  /// Records a pooled event at this point of `stream`. Null if the stream is destroyed; everything
  /// has passed then.
  Result<CUevent> record_event(Stream stream, IfGone gone) SPILLWAY_REQUIRES(mutex_);
  /// Makes `later` wait for everything submitted to `earlier` so far.
  Status order(Stream earlier, Stream later) SPILLWAY_REQUIRES(mutex_);
  Result<CUevent> pass_all_sync() SPILLWAY_REQUIRES(mutex_);
  /// Records the promised marker of `fence` if it is missing.
  Status keep_promise(Fence fence, IfGone gone) SPILLWAY_REQUIRES(mutex_);
  void retire_passed() SPILLWAY_REQUIRES(mutex_);
  void retire_oldest() SPILLWAY_REQUIRES(mutex_);
  [[nodiscard]] CUevent event_for(std::uint64_t point) SPILLWAY_REQUIRES(mutex_);

  const Device device_;
  const Stream stream_;
  Mutex mutex_;
  std::uint64_t next_ SPILLWAY_GUARDED_BY(mutex_) = 1;  // of the next marker
  std::uint64_t passed_ SPILLWAY_GUARDED_BY(mutex_) = 0;
  std::deque<Marker> outstanding_ SPILLWAY_GUARDED_BY(mutex_);  // consecutive points, in order
  std::vector<CUevent> spare_ SPILLWAY_GUARDED_BY(mutex_);
  // Of markers that have passed while a host thread may still wait for one of them.
  std::vector<CUevent> waited_for_ SPILLWAY_GUARDED_BY(mutex_);
  int host_waiters_ SPILLWAY_GUARDED_BY(mutex_) = 0;
  bool verified_ SPILLWAY_GUARDED_BY(mutex_) = false;
};

}  // namespace spillway::driver
