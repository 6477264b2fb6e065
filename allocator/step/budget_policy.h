// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "allocator/plan/budget.h"
#include "allocator/plan/budget_chooser.h"
#include "allocator/step/policy.h"

#include <functional>
#include <map>

namespace spillway {

/// Keeps each device that saves tensors under a tag within a budget (BudgetChooser).
class BudgetPolicy final : public OffloadPolicy {
 public:
  explicit BudgetPolicy(const Budget& budget) : budget_(budget) {}

  std::vector<PlanRequest> plans_for(const OfferedStorage& storage) override;
  void adopt(DeviceId device, std::vector<PlanRequest>&& done) override;
  /// Requires: the device's curve() has begun.
  PolicyDecision on_saved(const OfferedStorage& storage, TagStepStats& step) override;
  void on_event(StorageEvent event, DeviceId device, std::size_t index) override;

  bool on_first_use(std::size_t, std::optional<std::size_t>) override { return true; }

  [[nodiscard]] std::vector<std::size_t> prefetch_after(DeviceId device,
                                                        std::size_t index) const override;
  std::vector<BudgetMiss> on_backward_end() override;
  std::vector<BudgetMiss> on_end(bool had_backward, bool optimized) override;
  [[nodiscard]] std::uint64_t mismatches() const override;

  /// The devices of the step that on_end() has ended.
  [[nodiscard]] const std::vector<DeviceId>& ended() const { return ended_; }

  /// The device's chooser; null before its first step.
  [[nodiscard]] BudgetChooser* on(DeviceId device);
  [[nodiscard]] const BudgetChooser* on(DeviceId device) const;
  /// Likewise, created if necessary.
  BudgetChooser& chooser(DeviceRuntime& device);
  /// The sum over all devices.
  [[nodiscard]] std::uint64_t sum(std::uint64_t BudgetChooser::Counts::*count) const;

 private:
  struct OnDevice {
    DeviceRuntime* device;
    BudgetChooser chooser;
    Bytes reserved{};      // peak until the end of the step's backward pass
    bool pressed = false;  // something was offloaded by then because there was no room
  };

  /// Called at a step's first storage, before its plans are made.
  static void foresee(OnDevice& on);
  OnDevice& on_device(DeviceRuntime& device);
  static BudgetMiss miss(const OnDevice& on, const BudgetShortage& shortage);
  static std::optional<BudgetMiss> end(OnDevice& on, bool optimized);

  const Budget budget_;
  std::map<DeviceId, OnDevice> devices_;
  std::vector<DeviceId> ended_;
};

}  // namespace spillway
