// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "allocator/base/bytes.h"
#include "allocator/base/ids.h"
#include "allocator/driver/api.h"

#include <compare>

namespace spillway::driver {

/// A CUDA stream with another owner. Not constructible from a literal 0. The legacy default stream
/// is Stream{CUstream{nullptr}, device}, explicitly: every device has one, and all of them have the
/// same handle.
class Stream {
 public:
  explicit constexpr Stream(CUstream handle, DeviceId device = DeviceId{0})
      : handle_(handle), device_(device) {}

  Stream(int) = delete;

  [[nodiscard]] constexpr CUstream handle() const { return handle_; }

  [[nodiscard]] constexpr DeviceId device() const { return device_; }

  [[nodiscard]] bool default_of_its_device() const {
    return handle_ == nullptr || handle_ == CU_STREAM_LEGACY || handle_ == CU_STREAM_PER_THREAD;
  }

  /// Handles identify streams, except default streams.
  friend bool operator==(Stream left, Stream right) {
    return left.handle_ == right.handle_ &&
           (left.device_ == right.device_ || !left.default_of_its_device());
  }

 private:
  CUstream handle_;
  DeviceId device_;
};

/// An address in device memory: cannot be dereferenced, supports arithmetic with Bytes only.
class DevicePtr {
 public:
  constexpr DevicePtr() = default;

  explicit constexpr DevicePtr(CUdeviceptr address) : address_(address) {}

  explicit DevicePtr(const void* address) : address_(reinterpret_cast<CUdeviceptr>(address)) {}

  [[nodiscard]] constexpr CUdeviceptr address() const { return address_; }

  [[nodiscard]] void* raw() const {
    return reinterpret_cast<void*>(address_);  // NOLINT(performance-no-int-to-ptr): CUDA's identity
  }

  friend constexpr auto operator<=>(DevicePtr, DevicePtr) = default;

  friend DevicePtr operator+(DevicePtr at, Bytes by) { return DevicePtr(at.address_ + by.count()); }

 private:
  CUdeviceptr address_ = 0;
};

/// Makes a device's primary context current on this thread for a scope. Within another such scope
/// of the same device it makes no driver call, so code in a scope must not make another context
/// current. Errors are sticky driver states and appear in the next call, so construction cannot
/// fail.
class CurrentDevice {
 public:
  CurrentDevice(const Api& api, CUcontext context);
  ~CurrentDevice();
  CurrentDevice(const CurrentDevice&) = delete;
  CurrentDevice& operator=(const CurrentDevice&) = delete;

 private:
  const Api& api_;
  const CUcontext around_;  // of the enclosing scope; null if there is none
  bool pushed_ = false;
};

/// During its lifetime, calls on this thread that a stream capture forbids (mainly registration) do
/// not invalidate captures of other threads. Errors appear in the guarded call.
class OutsideCaptures {
 public:
  explicit OutsideCaptures(const Api& api) : api_(api) {
    api_.ThreadExchangeStreamCaptureMode(&mode_);
  }

  ~OutsideCaptures() { api_.ThreadExchangeStreamCaptureMode(&mode_); }

  OutsideCaptures(const OutsideCaptures&) = delete;
  OutsideCaptures& operator=(const OutsideCaptures&) = delete;

 private:
  const Api& api_;
  CUstreamCaptureMode mode_ = CU_STREAM_CAPTURE_MODE_RELAXED;
};

/// A device for the stages: the function table, its ordinal and its retained primary context.
struct Device {
  const Api* api;
  DeviceId id;
  CUcontext context;

  /// Retains the primary context, which is never released because other libraries in the process
  /// use it too.
  static Result<Device> open(const Api& api, DeviceId id);
};

struct MemoryInfo {
  Bytes free;
  Bytes total;
};

/// The total and free memory of a device, over all processes. Errors: kDriver.
Result<MemoryInfo> memory_info(const Device& device);

/// Reserves `size` bytes of addresses, for MemMap.
/// Errors: kOutOfHostMemory, with the limit in the text, if the process's limit of its address
/// space is too small; otherwise the driver's error.
Result<DevicePtr> reserve_addresses(const Device& device, Bytes size);

/// Grants a device read and write access to mapped memory.
CUmemAccessDesc access_of(DeviceId device);

/// Spillway's own driver calls since the process started, over all devices. Law 10 is tested by
/// them.
/// Threads: safe.
struct Counters {
  std::uint64_t allocations;    // successful calls of cuMemCreate
  std::uint64_t registrations;  // successful calls of cuMemHostRegister
  std::uint64_t host_syncs;     // times the host waited for the device
  std::uint64_t lost_streams;   // part of these: because a stream had been destroyed
  std::uint64_t sleeps;         // calls of sleep_for() in real time
};

Counters counters();
void count_allocation();
void count_registration();
void count_host_sync();
void count_lost_stream();
void count_sleep();

}  // namespace spillway::driver
