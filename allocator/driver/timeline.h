// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "allocator/base/mutex.h"
#include "allocator/driver/handles.h"

#include <cstdint>
#include <deque>
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
  Result<Fence> mark();

  /// A fence for this place that costs nothing now: its marker is recorded, once for all that were
  /// promised since the last one, when the first of them is asked about or waited for. Until then
  /// it has not passed. Cannot fail; where the marker cannot be recorded, the asking does.
  Fence promise();

  /// Makes `waiter` wait for `fence`, on the device. Nothing to do for a fence of `waiter`'s own
  /// stream or one that is known to have passed. Stream: no host wait. Errors: kDriver; kNotReady
  /// while `waiter`, or the stream that a marker was promised of, is being captured.
  static Status wait(Stream waiter, Fence fence);

  /// Whether the device has reached `fence`, as far as one query per outstanding marker can tell.
  /// No host wait.
  static bool passed(Fence fence);

  /// Blocks the host until `fence` has passed; counted in Counters::host_syncs. Errors: kDriver.
  static Status wait_sync(Fence fence);

 private:
  struct Marker {
    std::uint64_t point;
    CUevent event;
  };

  Result<Fence> record() SPILLWAY_REQUIRES(mutex_);
  /// Records the marker that `fence` was promised, if it is missing.
  Status keep_promise(Fence fence) SPILLWAY_REQUIRES(mutex_);
  void retire_passed() SPILLWAY_REQUIRES(mutex_);
  void retire_oldest() SPILLWAY_REQUIRES(mutex_);
  [[nodiscard]] CUevent event_for(std::uint64_t point) SPILLWAY_REQUIRES(mutex_);

  const Device device_;
  const Stream stream_;
  Mutex mutex_;
  std::uint64_t next_ SPILLWAY_GUARDED_BY(mutex_) = 1;  // of the marker that is recorded next
  std::uint64_t passed_ SPILLWAY_GUARDED_BY(mutex_) = 0;
  std::deque<Marker> outstanding_ SPILLWAY_GUARDED_BY(mutex_);  // oldest first
  std::vector<CUevent> spare_ SPILLWAY_GUARDED_BY(mutex_);
};

}  // namespace spillway::driver
