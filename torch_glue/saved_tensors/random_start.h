// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Generator.h>
#include <c10/core/Device.h>

#include <cstdint>
#include <mutex>

namespace spillway {

/// The state of a device's default generator before an operator.
struct RandomStart {
  /// The present one.
  static RandomStart of(c10::DeviceIndex device);

  c10::DeviceIndex device;
  std::uint64_t seed;
  std::uint64_t offset;
};

/// During its lifetime, the device's generator continues from that state. One at a time.
class DrawAgain {
 public:
  explicit DrawAgain(const RandomStart& start);
  ~DrawAgain();
  DrawAgain(const DrawAgain&) = delete;
  DrawAgain& operator=(const DrawAgain&) = delete;

 private:
  void set(std::uint64_t seed, std::uint64_t offset);

  const std::lock_guard<std::mutex> one_at_a_time_;
  at::Generator generator_;
  std::uint64_t seed_ = 0;
  std::uint64_t offset_ = 0;
};

}  // namespace spillway
