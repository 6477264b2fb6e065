// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "allocator/device/device_registry.h"
#include "allocator/device/pause_coordinator.h"
#include "allocator/runtime/stats.h"
#include "allocator/step/budget_plans.h"
#include "allocator/step/step_session.h"

#include <cstddef>
#include <limits>

namespace spillway {

/// Joins the parts of a process: its devices, its pauses and its training step. Created on first
/// use and never destroyed, because CUDA may be shut down when destructors run. Inert in a forked
/// child.
/// Threads: safe.
class Runtime {
 public:
  static Runtime& instance();

  /// For tests: a separate Runtime with separate options.
  explicit Runtime(RuntimeOptions options);

  DeviceRegistry& devices() { return devices_; }

  /// As DeviceRegistry::device.
  Result<DeviceRuntime*> device(DeviceId id) { return devices_.device(id); }

  PauseCoordinator& pauses() { return pauses_; }

  StepSession& step() { return step_; }

  BudgetPlans& plans() { return plans_; }

  [[nodiscard]] const RuntimeOptions& options() const { return devices_.options(); }

  /// Reads a device's model state, for statistics. It may be called with any of Spillway's locks
  /// held.
  using ModelStateSource = ModelStateBytes (*)(DeviceId device);
  /// Sets the source of all devices; null: none.
  static void set_model_state_source(ModelStateSource source);

  /// Statistics; tags are limited to the first `most_tags` by id.
  [[nodiscard]] RuntimeStats stats(
      std::size_t most_tags = std::numeric_limits<std::size_t>::max()) const;

 private:
  Runtime(RuntimeOptions options, Status settings);

  DeviceRegistry devices_;
  PauseCoordinator pauses_{devices_};
  StepSession step_{devices_};
  BudgetPlans plans_{step_};
};

}  // namespace spillway
