// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "allocator/base/ids.h"
#include "allocator/base/mutex.h"
#include "allocator/driver/handles.h"

#include <cupti_callbacks.h>

#include <atomic>
#include <cstdint>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

namespace spillway::hooks {

/// A kernel that was launched and has ended. Units: nanoseconds, on the clocks of driver::Span, so
/// kernels and copies stand on one time axis.
struct Launch {
  std::string name;  // as CUPTI has it, mangled; empty where it has none
  DeviceId device{};
  std::uint64_t stream = 0;     // its handle
  std::uint64_t submitted = 0;  // the host's steady clock
  std::uint64_t begin = 0;      // the device's time
  std::uint64_t end = 0;
};

struct LaunchCounts {
  std::uint64_t launches = 0;  // that were seen
  std::uint64_t untimed = 0;   // of those: in a capture, of another context, or refused
};

/// What a launch watch does in CUPTI's callbacks: a span of driver::SpanLog around each launch, and
/// the names. Owes CUPTI nothing and calls nothing of it.
///
/// Threads: safe. One for the process: all share SpanLog's kernels.
class LaunchRecorder {
 public:
  /// Forgets what was not taken, and all counts. Requires: `driver` lives indefinitely.
  void begin(const driver::Api& driver);

  /// The two ends of a call that launches a kernel, on the thread that makes it. What comes between
  /// them on the same thread, from the driver functions that these call, counts for nothing.
  void entered(CUstream stream, const CUpti_CallbackData& call);
  void left(const CUpti_CallbackData& call);

  /// A launch could not be followed.
  void missed() { untimed_.fetch_add(1, std::memory_order_relaxed); }

  static std::vector<Launch> take();
  [[nodiscard]] LaunchCounts counts() const;

 private:
  /// The device whose primary context this is, which must be current; none for other contexts.
  std::optional<driver::Device> device_of(CUcontext context);

  std::atomic<std::uint64_t> launches_{0};
  std::atomic<std::uint64_t> untimed_{0};
  Mutex mutex_;
  const driver::Api* driver_ SPILLWAY_GUARDED_BY(mutex_) = nullptr;
  std::unordered_map<CUcontext, std::optional<driver::Device>> contexts_
      SPILLWAY_GUARDED_BY(mutex_);
};

}  // namespace spillway::hooks
