// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "bench/micro/probe.h"

#include <vector>

namespace spillway::micro {

/// A range of device memory made of equal chunks, and what each step of making and ending it took.
/// Ownership: owns the range; borrows the probe.
class DeviceRange {
 public:
  struct Cost {
    Seconds reserve{}, create{}, map{};  // create and map: of all chunks
    Seconds access{};                    // one call for the range
  };

  static Result<DeviceRange> make(Probe& probe, Bytes chunk, std::size_t count);
  DeviceRange(DeviceRange&& other) noexcept;
  DeviceRange(const DeviceRange&) = delete;
  DeviceRange& operator=(DeviceRange&&) = delete;
  DeviceRange& operator=(const DeviceRange&) = delete;
  ~DeviceRange();

  [[nodiscard]] CUdeviceptr at() const { return at_; }

  [[nodiscard]] Bytes size() const { return Bytes{chunk_.count() * mapped_}; }

  [[nodiscard]] const Cost& cost() const { return cost_; }

  /// Releases the memory, as the destructor does, and returns how long that took.
  Seconds unmap();
  Seconds release();

 private:
  DeviceRange(Probe& probe, Bytes chunk, std::size_t count)
      : probe_(&probe), chunk_(chunk), count_(count) {}

  Probe* probe_;
  Bytes chunk_;
  std::size_t count_;
  CUdeviceptr at_ = 0;
  std::vector<CUmemGenericAllocationHandle> chunks_;
  std::size_t mapped_ = 0;
  Cost cost_;
};

}  // namespace spillway::micro
