// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>

#include <vector>

namespace spillway {

/// What a computation depends on besides its inputs: autocast, and the random numbers of the CPU
/// and of every device that has a context. Taken on the thread that computes.
class ForwardState {
 public:
  /// The state now. Without `random` generators are left alone; without `devices_drew` those of
  /// devices have not been used.
  ForwardState(bool random, bool devices_drew);

  /// Keeps the generators that have been used since, those of devices that are new included.
  void first_call_ended();

  /// Brings the state back while it lives, on the thread that makes it.
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
