// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace spillway::emulator {

/// A string literal as a template argument.
template <std::size_t kSize>
struct Literal {
  constexpr Literal(const char (&literal)[kSize]) { std::copy_n(literal, kSize, text); }  // NOLINT

  char text[kSize]{};
};

/// Counter of an event.
/// Threads: safe and lock-free, so that a fork leaves no held lock.
/// Ownership: a global that is never destroyed, because a list refers to it.
class Counter {
 public:
  explicit constexpr Counter(const char* name) : name_(name) {}

  ~Counter() = default;
  Counter(const Counter&) = delete;
  Counter& operator=(const Counter&) = delete;

  /// `by` is above 0.
  void add(std::uint64_t by = 1) {
    if (count_.fetch_add(by, std::memory_order_relaxed) == 0) enlist();
  }

  /// The count of a name; 0 if it never occurred.
  static std::uint64_t of(std::string_view name);

 private:
  void enlist();

  const char* name_;
  std::atomic<std::uint64_t> count_{0};
  Counter* next_ = nullptr;
};

/// The counter of an API function or of one of the events below.
template <Literal kName>
inline constinit Counter counter{kName.text};

inline Counter& host_syncs() {
  return counter<"host_syncs">;
}

inline Counter& device_allocations() {
  return counter<"device_allocations">;
}

inline Counter& host_registrations() {
  return counter<"host_registrations">;
}

inline Counter& bytes_to_device() {
  return counter<"bytes_to_device">;
}

inline Counter& bytes_to_host() {
  return counter<"bytes_to_host">;
}

/// Operators that cost a stream time: about the number of kernels on a GPU.
inline Counter& kernels() {
  return counter<"kernels">;
}

inline Counter& unordered() {
  return counter<"unordered">;
}

}  // namespace spillway::emulator
