// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "allocator/step/step_session.h"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace spillway {

/// The recordings and plans of a session's tags with a budget. For tags without one, and in a
/// forked child, queries return nothing and updates have no effect.
/// Threads: safe; uses the session's lock. Ownership: borrows the session.
class BudgetPlans {
 public:
  explicit BudgetPlans(StepSession& session) : session_(session) {}

  /// The plan of the tag's last step that had a plan with times; none if there is none.
  [[nodiscard]] std::optional<PlannedStep> planned_step(TagId tag, DeviceId device) const;
  /// As Shapes::predicted_reserved.
  [[nodiscard]] Bytes reserved_following_plans(TagId tag, DeviceId device) const;
  /// The steps that the tag's budget has recorded on the device, as Shapes::known.
  [[nodiscard]] std::vector<KnownStep> known_steps(TagId tag, DeviceId device) const;
  /// Number of changes to them, over all devices.
  [[nodiscard]] std::uint64_t records(TagId tag) const;

  /// Whether the next step's plan needs the times of the device's last step.
  [[nodiscard]] bool awaits_times(DeviceId device);
  /// Sets the times of the step that ended `steps_ago` steps before the device's last one.
  void time(DeviceId device, const StepTimes& times, std::size_t steps_ago);
  /// Sets the duration of a step on the device, in seconds; as BudgetChooser::add_step_duration.
  void add_step_duration(DeviceId device, double seconds, std::size_t steps_ago);
  /// Plans the tag's steps with recorded ones.
  /// Errors: as DeviceRegistry::device, and as BudgetChooser::learn; the steps before an invalid
  /// one are learned.
  Status learn_steps(TagId tag, DeviceId device, std::vector<KnownStep> steps);

 private:
  /// Calls `use` with the tag's chooser for the device, if there is one.
  template <typename Use>
  void with(TagId tag, DeviceId device, Use use) const;
  /// Likewise for all tags.
  template <typename Use>
  void with_each(DeviceId device, Use use);
  [[nodiscard]] std::uint64_t sum(TagId tag, std::uint64_t BudgetChooser::Counts::*count) const;

  StepSession& session_;
};

}  // namespace spillway
