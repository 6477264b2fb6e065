// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "allocator/base/ids.h"
#include "allocator/base/mutex.h"
#include "allocator/base/result.h"
#include "allocator/device/device_runtime.h"

#include <array>
#include <atomic>
#include <cstddef>
#include <map>
#include <memory>
#include <optional>
#include <vector>

namespace spillway {

/// The stages of a process's devices: one DeviceRuntime per device, created on first use. Inert in
/// a forked child.
/// Threads: safe. Finding a device that exists takes no lock.
class DeviceRegistry {
 public:
  /// `settings`: the error of the environment's settings, if any; then no device is created.
  DeviceRegistry(RuntimeOptions options, Status settings);

  /// Errors: kNoDriver, kDriver, kInvalidArgument (environment, or there is no such device).
  Result<DeviceRuntime*> device(DeviceId id);
  /// As `device`, but null if the device has not been created.
  [[nodiscard]] DeviceRuntime* if_made(DeviceId id) const;
  /// All that have been created, by id.
  [[nodiscard]] std::vector<DeviceRuntime*> made() const;
  /// The device whose heap has an allocated block that contains `at`; null if there is none.
  [[nodiscard]] DeviceRuntime* owner(driver::DevicePtr at) const;

  /// Caps the reserved bytes of each device's heap, also of devices created later; as
  /// DeviceLimits::set.
  /// Errors: kInvalidArgument if an existing device has less memory; the other devices are
  /// unchanged. A later device with less memory cannot be created.
  Status set_memory_limit(Bytes limit);

  /// Caps the reserved bytes of each device's heap for the whole process, also of devices created
  /// later (HeapLimits::hold_budget). A device on which it is less than
  /// HeapLimits::smallest_budget() has none.
  /// Errors: kDriver, if it is a share of the device's memory, which cannot be queried.
  Status hold_budget(const Budget& budget);

  /// The error of the environment's settings; ok if devices can be created.
  [[nodiscard]] Status settings() const { return settings_; }

  [[nodiscard]] const RuntimeOptions& options() const { return options_; }

  /// Tags that the out-of-memory handling may pause.
  Evictable& evictable() { return evictable_; }

 private:
  static constexpr std::size_t kMaxDevices = 64;  // devices that are found without the lock

  const RuntimeOptions options_;
  const Status settings_;
  Evictable evictable_;
  // held while a device is created, so that it is created once; locked before mutex_
  Mutex making_;
  mutable Mutex mutex_;
  std::map<DeviceId, std::unique_ptr<DeviceRuntime>> devices_ SPILLWAY_GUARDED_BY(mutex_);
  Bytes memory_limit_ SPILLWAY_GUARDED_BY(mutex_);
  std::optional<Budget> budget_ SPILLWAY_GUARDED_BY(mutex_);  // hold_budget()
  /// Those of `devices_` by number, for readers without the lock.
  std::array<std::atomic<DeviceRuntime*>, kMaxDevices> made_{};
};

}  // namespace spillway
