// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "allocator/base/mutex.h"
#include "allocator/device/device_runtime.h"
#include "allocator/driver/timeline.h"

#include <c10/cuda/CUDAStream.h>

#include <atomic>

namespace spillway {

/// A stream of Spillway's own, one per device, for work whose results the program needs later: the
/// kernels of an optimizer's step. While a thread has entered it, it is the thread's current
/// stream. The stream that was current before is its home.
///
/// Its work begins after everything submitted to the home stream before. It gets memory of the home
/// stream, which is reusable there after the work has passed. The home stream does not wait for
/// its results: each stream that uses them waits for a fence (promise()), or for everything
/// (join()).
/// Threads: safe; what a thread has entered is its own.
class SideStream {
 public:
  /// Makes the device's side stream current. Returns false, and does nothing, if this thread has
  /// entered one, its current stream is being captured into a graph, or no stream can be created.
  /// Stream: no host wait.
  /// Errors: c10::Error; then nothing has changed.
  static bool enter(DeviceRuntime& device);

  /// Makes the home stream current again, unless the thread has made another one current. Without
  /// enter(), it does nothing.
  static void leave();

  /// The side stream that this thread has entered, if that is `stream`; null if not.
  static SideStream* entered_as(cudaStream_t stream) {
    return exists() ? find_entered(stream) : nullptr;
  }

  /// The stream whose memory work on `stream` uses: its home, or itself.
  static c10::cuda::CUDAStream home_of(c10::cuda::CUDAStream stream) {
    return entered_as(stream.stream()) == nullptr ? stream : home();
  }

  /// Requires: this thread has entered it.
  [[nodiscard]] static c10::cuda::CUDAStream home();

  [[nodiscard]] c10::cuda::CUDAStream stream() const { return stream_; }

  /// A fence after all work submitted so far, perhaps also after what is submitted before leave().
  driver::Fence promise() { return work_.promise(); }

  /// Makes memory of the home stream that was free usable for work that is submitted next.
  /// `uses`: by other streams.
  /// Errors: c10::Error.
  void take(const driver::FenceSet& uses);

  /// Whether a thread has ever entered one.
  static bool exists() { return exists_.load(std::memory_order_relaxed); }

  /// Makes `stream` wait for all work of the device's side stream, if there is any that may not
  /// have passed. The host waits instead if `stream` is being captured. Errors: c10::Error.
  static void join(c10::cuda::CUDAStream stream);

 private:
  SideStream(DeviceRuntime& device, CUstream made);
  /// Creates it at the first call. Null if it cannot.
  static SideStream* of(DeviceRuntime& device);
  static SideStream* find_entered(cudaStream_t stream);
  static std::atomic<SideStream*>& known(c10::DeviceIndex device);

  const c10::cuda::CUDAStream stream_;
  driver::Timeline work_;
  driver::Timelines homes_;
  LightMutex mutex_;
  driver::Fence last_ SPILLWAY_GUARDED_BY(mutex_);  // of the last thread that left it

  static std::atomic<bool> exists_;
};

}  // namespace spillway
