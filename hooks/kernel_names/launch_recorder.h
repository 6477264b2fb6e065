// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "allocator/base/ids.h"
#include "allocator/base/mutex.h"
#include "allocator/driver/handles.h"

#include <cupti_callbacks.h>

#include <atomic>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

namespace spillway::hooks {

/// A driver function that launches one kernel on one stream. Graph launches are excluded.
struct LaunchSite {
  CUpti_CallbackId id;
  CUstream (*stream)(const void* parameters);  // as the driver receives it: never null with _ptsz
};

/// All watched functions.
std::span<const LaunchSite> launch_sites();

/// Null for any other function.
const LaunchSite* launch_site(CUpti_CallbackId id);

/// A launched kernel that has ended. Units: nanoseconds, on the clocks of driver::Span, so that
/// kernels and copies share one time axis.
struct Launch {
  std::string name;  // as CUPTI reports it, mangled; empty if it has none
  DeviceId device{};
  std::uint64_t stream = 0;     // its handle
  std::uint64_t submitted = 0;  // the host's steady clock
  std::uint64_t begin = 0;      // device time
  std::uint64_t end = 0;
};

struct LaunchCounts {
  std::uint64_t launches = 0;  // observed launches
  std::uint64_t untimed = 0;   // part of these: in a capture, of another context, or refused
};

/// The work of a launch watch in CUPTI's callbacks: a span of driver::SpanLog around each launch,
/// and the names. Depends on no CUPTI function.
///
/// Threads: safe. One per process, because all share SpanLog's kernels.
class LaunchRecorder {
 public:
  /// Drops untaken launches and all counts. Requires: `driver` outlives the process.
  void begin(const driver::Api& driver);

  /// The beginning and end of a call that launches a kernel, on the calling thread. Nested driver
  /// calls on the same thread do not count.
  void entered(CUstream stream, const CUpti_CallbackData& call);
  void left(const CUpti_CallbackData& call);

  /// Counts a launch that could not be tracked.
  void missed() { untimed_.fetch_add(1, std::memory_order_relaxed); }

  static std::vector<Launch> take();
  [[nodiscard]] LaunchCounts counts() const;

 private:
  /// The device whose primary context this is. The context must be current. None for other
  /// contexts.
  std::optional<driver::Device> device_of(CUcontext context);

  std::atomic<std::uint64_t> launches_{0};
  std::atomic<std::uint64_t> untimed_{0};
  Mutex mutex_;
  const driver::Api* driver_ SPILLWAY_GUARDED_BY(mutex_) = nullptr;
  std::unordered_map<CUcontext, std::optional<driver::Device>> contexts_
      SPILLWAY_GUARDED_BY(mutex_);
};

}  // namespace spillway::hooks
