// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>

namespace spillway {

/// How long a pass of a device takes, that is a step of a region with a budget: the last one whose
/// end is known. And how fast copies to the device are, by the last plan's measurement.
/// Threads: safe.
class PassPace {
 public:
  void set_seconds(double seconds) { seconds_ = seconds; }

  void set_rate(double bytes_per_second) { bytes_per_second_ = bytes_per_second; }

  /// The bytes that could be copied to the device during the pass; zero while unknown.
  [[nodiscard]] double bytes_in() const { return seconds_ * bytes_per_second_; }

 private:
  std::atomic<double> seconds_{0};
  std::atomic<double> bytes_per_second_{0};
};

}  // namespace spillway
