// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda.h>

#include <array>
#include <cstddef>

namespace spillway::emulator {

struct Stream;

inline constexpr int kNoDevice = -1;

/// CUDA's state per thread: the device of the current context, shared by driver and runtime, and
/// the runtime's last error. Trivially destructible, because programs call CUDA until a thread's
/// end.
struct ThreadState {
  int device = kNoDevice;
  std::array<int, 64> pushed{};
  std::size_t depth = 0;
  int last_error = 0;
  bool in_host_function = false;
  bool zero_is_own = false;  // stream 0 means the thread's own default stream, not the device's
  std::array<Stream*, 8> own_streams{};  // the per-thread default streams, by device
  CUstreamCaptureMode capture_mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
  const char* location = nullptr;   // for the order checker: the thread's location in the program
  const char* tag = nullptr;        // and its tag
  std::array<char, 512> refused{};  // the last refused call, for the error's text
};

inline ThreadState& thread_state() {
  static thread_local ThreadState state;
  return state;
}

/// Marks a function of the program that runs on a stream: it must not call CUDA.
class InHostFunction {
 public:
  InHostFunction() : outer_(thread_state().in_host_function) {
    thread_state().in_host_function = true;
  }

  ~InHostFunction() { thread_state().in_host_function = outer_; }

  InHostFunction(const InHostFunction&) = delete;
  InHostFunction& operator=(const InHostFunction&) = delete;

 private:
  bool outer_;
};

/// The body of a function for programs that are compiled with per-thread default streams.
class PerThreadDefaultStreamScope {
 public:
  PerThreadDefaultStreamScope() { thread_state().zero_is_own = true; }

  ~PerThreadDefaultStreamScope() { thread_state().zero_is_own = false; }

  PerThreadDefaultStreamScope(const PerThreadDefaultStreamScope&) = delete;
  PerThreadDefaultStreamScope& operator=(const PerThreadDefaultStreamScope&) = delete;
};

}  // namespace spillway::emulator
