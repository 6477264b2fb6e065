// SPDX-License-Identifier: Apache-2.0
#include "allocator/device/device_registry.h"

#include "allocator/device/fork.h"

#include <string>
#include <utility>

namespace spillway {

DeviceRegistry::DeviceRegistry(RuntimeOptions options, Status settings)
    : options_(std::move(options)),
      settings_(std::move(settings)),
      memory_limit_(options_.memory_limit) {}

Result<DeviceRuntime*> DeviceRegistry::device(DeviceId id) {
  if (DeviceRuntime* made = if_made(id)) return made;
  if (in_forked_child()) {
    return SPILLWAY_ERROR(
        Code::kNotReady,
        "this process was forked from one that uses Spillway. Start it with spawn instead.");
  }
  SPILLWAY_RETURN_IF_ERROR(settings_);
  const Lock making(making_);
  if (DeviceRuntime* made = if_made(id)) return made;
  SPILLWAY_ASSIGN_OR_RETURN(const driver::Api* const api, driver::api());
  int devices = 0;
  SPILLWAY_RETURN_IF_ERROR(SPILLWAY_CALL(*api, DeviceGetCount, &devices));
  if (static_cast<int>(id) < 0 || static_cast<int>(id) >= devices) {
    return SPILLWAY_ERROR(Code::kInvalidArgument,
                          "device " + std::to_string(static_cast<int>(id)) +
                              ": expected one of the " + std::to_string(devices) +
                              " devices, which count from 0");
  }
  SPILLWAY_ASSIGN_OR_RETURN(const driver::Device device, driver::Device::open(*api, id));
  RuntimeOptions options = options_;
  std::optional<Budget> budget;
  {
    const Lock lock(mutex_);
    options.memory_limit = memory_limit_;
    budget = budget_;
  }
  SPILLWAY_ASSIGN_OR_RETURN(auto made, DeviceRuntime::create(device, options, evictable_));
  if (budget) SPILLWAY_RETURN_IF_ERROR(made->budget().hold(*budget));
  const Lock lock(mutex_);
  DeviceRuntime* const entered = devices_.emplace(id, std::move(made)).first->second.get();
  const auto number = static_cast<std::size_t>(id);
  if (number < made_.size()) made_.at(number).store(entered, std::memory_order_release);
  return entered;
}

DeviceRuntime* DeviceRegistry::if_made(DeviceId id) const {
  if (in_forked_child()) return nullptr;
  const auto number = static_cast<std::size_t>(id);
  if (number < made_.size()) return made_.at(number).load(std::memory_order_acquire);
  const Lock lock(mutex_);
  const auto found = devices_.find(id);
  return found == devices_.end() ? nullptr : found->second.get();
}

std::vector<DeviceRuntime*> DeviceRegistry::made() const {
  const Lock lock(mutex_);
  std::vector<DeviceRuntime*> all;
  for (const auto& [id, device] : devices_)
    all.push_back(device.get());
  return all;
}

DeviceRuntime* DeviceRegistry::owner(driver::DevicePtr at) const {
  if (in_forked_child()) return nullptr;
  for (DeviceRuntime* const device : made()) {
    if (device->heap().find(at).allocated) return device;
  }
  return nullptr;
}

Status DeviceRegistry::hold_budget(const Budget& budget) {
  const Lock making(making_);
  for (DeviceRuntime* const device : made()) {
    SPILLWAY_RETURN_IF_ERROR(device->budget().hold(budget));
  }
  const Lock lock(mutex_);
  budget_ = budget;
  return {};
}

Status DeviceRegistry::set_memory_limit(Bytes limit) {
  const Lock making(making_);
  for (DeviceRuntime* const device : made()) {
    SPILLWAY_RETURN_IF_ERROR(device->limits().set(DeviceLimits::Limit::kAbsolute, limit));
  }
  const Lock lock(mutex_);
  memory_limit_ = limit;
  return {};
}

}  // namespace spillway
