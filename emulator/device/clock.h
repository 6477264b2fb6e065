// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "emulator/device/settings.h"

#include <array>
#include <chrono>
#include <cstdint>
#include <vector>

namespace spillway::emulator {

/// What an operation costs its device.
struct Cost {
  enum class Kind {
    kNone,
    kHostToDevice,  // one copy engine of each device for each direction, first come first served
    kDeviceToHost,
    kOnHost,
    kBetweenDevices,
    kCollective,  // bytes that go to other devices, beside kernels and copies
    kMemory,      // bytes that a copy, fill or kernel reads and writes in the device's memory
  };

  Kind kind = Kind::kNone;
  std::uint64_t bytes = 0;
  double least = 0;  // seconds that it takes at least, whatever its bytes
  KernelKind kernel = KernelKind::kOther;
};

/// What a device is busy with. Numbered as in emulator.h; the first are those of KernelKind.
enum class Work : std::uint8_t {
  kOther,  // by memory's rate: fills and copies within the device too
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

}  // namespace rates

/// The virtual time of the host and of each device's copy engines, in seconds since the machine was
/// made. All host threads share one time; what they compute themselves takes none. Where the clock
/// is real nothing here is asked but `now_ms`.
/// Threads: under the machine's lock.
class Clock {
 public:
  Clock(const ClockSettings& settings, int devices);

  [[nodiscard]] bool is_virtual() const { return settings_.is_virtual; }

  [[nodiscard]] const Rates& rates() const { return settings_.rates; }

  /// When an operation with this cost ends that may begin at `ready`, given now.
  double run(int device, double ready, const Cost& cost);

  [[nodiscard]] double host() const { return host_; }

  /// Seconds that a device has been busy with something. While several kernels run at once, the
  /// time is that of the one that was given first.
  [[nodiscard]] double busy(int device, Work work) const {
    return engines_[static_cast<std::size_t>(device)].busy[static_cast<std::size_t>(work)];
  }

  void host_works(double seconds) { host_ += seconds; }

  void host_reaches(double time) {
    if (time > host_) host_ = time;
  }

  /// The host's time; where the clock is real, since the machine was made.
  [[nodiscard]] double now_ms() const;

 private:
  /// A copy engine's last copy.
  struct Engine {
    double begin = 0;
    double end = 0;  // when it is free
  };

  struct Engines {
    Engine to_device;
    Engine from_device;
    double kernels = 0;  // when the last of those that were given ends
    std::array<double, kWorks> busy{};
  };

  [[nodiscard]] double beside(const Engine& other, double begin, double alone) const;
  double copy(Engines& engines, Work direction, double ready, const Cost& cost) const;
  static double compute(Engines& engines, KernelKind kind, double begin, double seconds);

  const ClockSettings settings_;
  const std::chrono::steady_clock::time_point made_;
  double host_ = 0;
  std::vector<Engines> engines_;
};

}  // namespace spillway::emulator
