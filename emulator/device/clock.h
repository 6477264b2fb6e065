// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "emulator/device/settings.h"

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <utility>
#include <vector>

namespace spillway::emulator {

/// The cost of an operation on its device.
struct Cost {
  enum class Kind {
    kNone,
    kHostToDevice,  // one copy engine per device and direction, large ones in submission order
    kDeviceToHost,
    kOnHost,
    kBetweenDevices,
    kCollective,  // bytes sent to other devices, concurrently with kernels and copies
    kMemory,      // bytes that a copy, fill or kernel reads and writes in device memory
  };

  Kind kind = Kind::kNone;
  std::uint64_t bytes = 0;
  double least = 0;  // minimum duration in seconds, regardless of bytes
  KernelKind kernel = KernelKind::kOther;
};

/// Kinds of work of a device. Numbered as in emulator.h; the first are those of KernelKind.
enum class Work : std::uint8_t {
  kOther,  // at the rate of memory; includes fills and copies within the device
  kProduct,
  kAttention,
  kAttentionBackward,
  kToDevice,  // the copy engines
  kFromDevice,
  kCollective,
};

inline constexpr std::size_t kWorks = 7;

/// Constants of the virtual clock that no setting changes; times in seconds.
namespace rates {

inline constexpr double kOnHost = 20e9;  // bytes per second

/// A copy of at most these bytes passes copies of other streams that have not begun.
inline constexpr std::uint64_t kSmallCopy = 64U << 10U;

}  // namespace rates

/// The virtual time of the host and of each device's copy engines, in seconds since the machine was
/// created. All host threads share one time; their own computation takes none. With a real clock
/// only `now_ms` is used.
/// Threads: under the machine's lock.
class Clock {
 public:
  Clock(const ClockSettings& settings, int devices);

  [[nodiscard]] bool is_virtual() const { return settings_.is_virtual; }

  [[nodiscard]] const Rates& rates() const { return settings_.rates; }

  /// The end of an operation of this cost that is submitted now and may begin at `ready`.
  double run(int device, double ready, const Cost& cost);

  [[nodiscard]] double host() const { return host_; }

  /// Seconds that a device has been busy with a kind of work.
  [[nodiscard]] double busy(int device, Work work) const {
    return engines_[static_cast<std::size_t>(device)].busy[static_cast<std::size_t>(work)];
  }

  void host_works(double seconds) { host_ += seconds; }

  /// Calls on virtual memory: of one chunk, or of all chunks in a range.
  void host_creates(std::size_t bytes);
  void host_maps();
  void host_allows(std::size_t chunks, std::size_t devices);
  void host_unmaps(std::size_t chunks);
  void host_releases(std::size_t bytes);

  void host_reaches(double time) {
    if (time > host_) host_ = time;
  }

  /// The host's time; with a real clock, since the machine was created.
  [[nodiscard]] double now_ms() const;

 private:
  /// A copy engine's last copy.
  struct Engine {
    double begin = 0;
    double end = 0;                                  // when it is free
    std::deque<std::pair<double, double>> copies{};  // that may not have ended yet, in order
  };

  struct Engines {
    Engine to_device;
    Engine from_device;
    // While kernels run that may not have ended yet; disjoint, in order.
    std::deque<std::pair<double, double>> kernels{};
    std::array<double, kWorks> busy{};
  };

  [[nodiscard]] double beside(const Engine& other, double begin, double alone) const;
  double copy(Engines& engines, Work direction, double ready, const Cost& cost) const;
  [[nodiscard]] static double turn_of_small(const Engine& engine, double ready);
  double compute(Engines& engines, KernelKind kind, double begin, double seconds) const;

  const ClockSettings settings_;
  const std::chrono::steady_clock::time_point made_;
  double host_ = 0;
  std::vector<Engines> engines_;
};

}  // namespace spillway::emulator
