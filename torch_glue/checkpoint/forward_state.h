// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>

#include <vector>

namespace spillway {

/// The state that a computation depends on besides its inputs: autocast, and the random number
/// generators of the CPU and of every device with a context. Captured on the computing thread.
class ForwardState {
 public:
  /// Captures the present state. Without `random` the generators are ignored. Without
  /// `devices_drew` the devices' generators have not been used.
  ForwardState(bool random, bool devices_drew);

  /// Captures the generators that have been used since, including those of new devices.
  void first_call_ended();

  /// Restores the state during its lifetime, on the thread that creates it.
  class Restored;

 private:
  struct Random {
    at::Generator generator;
    at::Tensor state;
  };

  struct Autocast {
    c10::DeviceType device;
    bool enabled;
    c10::ScalarType dtype;
  };

  ForwardState() = default;
  [[nodiscard]] static std::vector<Autocast> autocast();
  void apply() const;

  bool preserves_ = false;
  std::vector<Random> random_;
  std::vector<Autocast> autocast_;
  bool autocast_cache_ = true;
};

class ForwardState::Restored {
 public:
  explicit Restored(const ForwardState& state);
  ~Restored();
  Restored(const Restored&) = delete;
  Restored& operator=(const Restored&) = delete;

 private:
  ForwardState before_;
};

}  // namespace spillway
