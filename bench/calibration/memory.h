// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "bench/calibration/probe.h"

#include <vector>

namespace spillway::calibration {

/// How pinned host memory is had.
enum class Pinning { kDriver, kHugePages, kSmallPages };
std::string_view name(Pinning pinning);

/// Pinned host memory; printing how long it took to get is the maker's business.
/// Ownership: owns the memory; borrows the probe.
class HostBuffer {
 public:
  struct Cost {
    Seconds fault{};  // touching every page, by all processors
    Seconds pin{};
  };

  /// Errors: kOutOfHostMemory, kDriver.
  static Result<HostBuffer> make(Probe& probe, Pinning pinning, Bytes size);
  HostBuffer(HostBuffer&& other) noexcept;
  HostBuffer(const HostBuffer&) = delete;
  HostBuffer& operator=(HostBuffer&&) = delete;
  HostBuffer& operator=(const HostBuffer&) = delete;
  ~HostBuffer();

  [[nodiscard]] std::byte* data() const { return data_; }

  [[nodiscard]] Bytes size() const { return size_; }

  [[nodiscard]] const Cost& cost() const { return cost_; }

 private:
  HostBuffer(Probe& probe, Pinning pinning, Bytes size)
      : probe_(&probe), pinning_(pinning), size_(size) {}

  Probe* probe_;
  Pinning pinning_;
  Bytes size_;
  std::byte* mapping_ = nullptr;
  Bytes mapped_;
  std::byte* data_ = nullptr;
  Cost cost_;
};

/// A range of device memory made of equal chunks, and what each step of making and ending it took.
/// Ownership: owns the range; borrows the probe.
class DeviceRange {
 public:
  struct Cost {
    Seconds reserve{}, create{}, map{},
        access{};  // create and map: of all chunks; access: one call for the range
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

}  // namespace spillway::calibration
