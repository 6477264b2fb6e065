// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "emulator/device/views.h"

#include <cuda.h>

#include <array>
#include <cstddef>

namespace spillway::emulator {

/// Access rights of kernels to another device's cudaMalloc memory. Mapped memory has rights of its
/// own, and pool memory those of its pool; copies between devices need none.
/// Threads: under the machine's lock.
/// Requires: existing devices.
class Peers {
 public:
  /// Errors: CUDA_ERROR_INVALID_DEVICE for the device itself,
  /// CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED.
  CUresult enable(int device, int peer) {
    if (device == peer) return CUDA_ERROR_INVALID_DEVICE;
    bool& entry = may_[at(device)][at(peer)];
    if (entry) return CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED;
    entry = true;
    return CUDA_SUCCESS;
  }

  /// Errors: CUDA_ERROR_PEER_ACCESS_NOT_ENABLED.
  CUresult disable(int device, int peer) {
    bool& entry = may_[at(device)][at(peer)];
    if (!entry) return CUDA_ERROR_PEER_ACCESS_NOT_ENABLED;
    entry = false;
    bump_mapping_generation();
    return CUDA_SUCCESS;
  }

  [[nodiscard]] bool may(int device, int peer) const {
    return device == peer || may_[at(device)][at(peer)];
  }

 private:
  static constexpr std::size_t kMax = 8;

  static std::size_t at(int device) { return static_cast<std::size_t>(device); }

  std::array<std::array<bool, kMax>, kMax> may_{};
};

}  // namespace spillway::emulator
