// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "allocator/base/mutex.h"
#include "allocator/driver/handles.h"

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <utility>
#include <vector>

namespace spillway::driver {

class Timeline;

/// A point on a stream, after everything submitted before it. It has passed once the device has
/// reached it. Trivially copyable; borrows its Timeline, which outlives all its fences.
struct Fence {
  Timeline* timeline = nullptr;
  std::uint64_t point = 0;  // in the order in which fences of all streams were made

  /// False for a default-constructed fence, which counts as passed.
  [[nodiscard]] bool set() const { return timeline != nullptr; }

  friend bool operator==(Fence, Fence) = default;
};

/// The order of one stream, as fences. A fence is implemented by a CUDA event, called its marker in
/// the members. Events are pooled: in steady state a fence costs one cuEventRecord, and no
/// cuEventCreate.
///
/// If the stream is destroyed, fences whose event is recorded stay valid and pass as usual. A
/// function that must record an event then waits on the host for the whole device. All fences of
/// this timeline have passed afterwards (counted in Counters::lost_streams). Only passed() and
/// verify() never wait.
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

  /// Records an event at this point of the stream, and returns its fence.
  /// Stream: no host wait, unless the stream is destroyed (above).
  /// Errors: kDriver; kNotReady while the stream is being captured into a graph, because the event
  /// would become part of the graph.
  Result<Fence> mark();

  /// Checks whether events of this device can be recorded on the stream.
  /// Requires: the first call precedes all other use of this timeline. Later, a stream of another
  /// device would be treated as a destroyed one, because the driver returns the same error.
  /// Stream: no wait; records an event the first time.
  /// Errors: kInvalidArgument if it is not a stream of this device; kDriver.
  Status verify();

  /// Returns a fence for this point without recording an event yet. The event is recorded late: by
  /// the next mark(), or the first query of, or wait for, a fence promised since the last event.
  /// All these fences share that event, so they also cover work submitted in between. Until then
  /// they have not passed. Never fails. If the event cannot be recorded, wait() and wait_sync()
  /// return the error, and passed() returns false.
  Fence promise();

  /// Makes `waiter` wait for `fence` on the device. Does nothing for a fence of `waiter`'s own
  /// stream, or one that is known to have passed.
  /// Stream: no host wait, unless a promised fence's stream is destroyed (above).
  /// Errors: kDriver; kInvalidArgument if `waiter` is not a stream. kNotReady while `waiter`, or
  /// the stream of a promised fence without an event, is being captured.
  static Status wait(Stream waiter, Fence fence);

  /// Makes `later` wait, on the device, for everything submitted to this stream so far. Like
  /// waiting for mark(), but without a fence to query later.
  /// Requires: `later` is not being captured.
  /// Stream: no host wait, unless this stream is destroyed (above).
  /// Errors: as mark().
  Status order_before(Stream later);

  /// Makes this stream wait for everything submitted to `earlier` so far. Then calls `submit()`,
  /// which submits work to this stream, and marks the point after that work. All of it runs under
  /// one lock.
  /// Requires: `earlier` belongs to this device, this stream is not being captured, and `submit`
  /// uses no timeline.
  /// Stream: no host wait, unless a stream is destroyed (above).
  /// Errors: as mark(), and those of `submit`.
  template <typename Submit>
  Result<Fence> mark_after(Stream earlier, Submit&& submit) {
    const Lock lock(mutex_);
    const CurrentDevice current(*device_.api, device_.context);
    if (earlier != stream_) SPILLWAY_RETURN_IF_ERROR(order(earlier, stream_));
    SPILLWAY_RETURN_IF_ERROR(std::forward<Submit>(submit)());
    return record(IfGone::kWaitForDevice);
  }

  /// Whether the device has reached `fence`. Queries outstanding events in order, up to the first
  /// that has not passed. Returns false if a query fails, or if a promised fence's event cannot be
  /// recorded, for example because the stream is destroyed. No host wait.
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

  /// Errors: as mark(); kInvalidArgument if the stream is destroyed and `gone` is kRefuse.
  Result<Fence> record(IfGone gone) SPILLWAY_REQUIRES(mutex_);
  /// Records a pooled event at this point of `stream`. Null if the stream is destroyed and `gone`
  /// is kWaitForDevice; all fences have passed then.
  Result<CUevent> record_event(Stream stream, IfGone gone) SPILLWAY_REQUIRES(mutex_);
  /// Makes `later` wait for everything submitted to `earlier` so far.
  Status order(Stream earlier, Stream later) SPILLWAY_REQUIRES(mutex_);
  Result<CUevent> pass_all_sync() SPILLWAY_REQUIRES(mutex_);
  /// Records the event of `fence` if that is only promised.
  Status keep_promise(Fence fence, IfGone gone) SPILLWAY_REQUIRES(mutex_);
  /// The point of the next marker, from now on.
  std::uint64_t next() SPILLWAY_REQUIRES(mutex_);
  void retire_passed() SPILLWAY_REQUIRES(mutex_);
  void retire_oldest() SPILLWAY_REQUIRES(mutex_);
  [[nodiscard]] CUevent event_for(std::uint64_t point) SPILLWAY_REQUIRES(mutex_);

  const Device device_;
  const Stream stream_;
  Mutex mutex_;
  std::uint64_t next_ SPILLWAY_GUARDED_BY(mutex_) = 0;  // of the next marker; 0: none yet
  std::uint64_t passed_ SPILLWAY_GUARDED_BY(mutex_) = 0;
  std::deque<Marker> outstanding_ SPILLWAY_GUARDED_BY(mutex_);  // in order
  std::vector<CUevent> spare_ SPILLWAY_GUARDED_BY(mutex_);
  // Events of passed markers that a host thread may still wait for; not reusable yet.
  std::vector<CUevent> waited_for_ SPILLWAY_GUARDED_BY(mutex_);
  int host_waiters_ SPILLWAY_GUARDED_BY(mutex_) = 0;
  bool verified_ SPILLWAY_GUARDED_BY(mutex_) = false;
};

/// One timeline per stream whose order this device must observe, created on first use.
/// Threads: safe.
/// Ownership: owns the timelines.
class Timelines {
 public:
  explicit Timelines(const Device& device) : device_(device) {}

  Timeline& of(Stream stream) {
    const LightLock lock(mutex_);
    std::unique_ptr<Timeline>& known = known_[{stream.device(), stream.handle()}];
    if (known == nullptr) known = std::make_unique<Timeline>(device_of(stream), stream);
    return *known;
  }

 private:
  /// If another device cannot be opened, uses this device. Its streams then cannot be marked, and
  /// memory that they use is not reused.
  [[nodiscard]] Device device_of(Stream stream) const {
    if (stream.device() == device_.id) return device_;
    const auto other = Device::open(*device_.api, stream.device());
    return other.ok() ? other.value() : device_;
  }

  const Device device_;
  LightMutex mutex_;
  std::map<std::pair<DeviceId, CUstream>, std::unique_ptr<Timeline>> known_
      SPILLWAY_GUARDED_BY(mutex_);
};

}  // namespace spillway::driver
