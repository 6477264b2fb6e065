// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "allocator/plan/ratio_chooser.h"
#include "allocator/step/policy.h"

namespace spillway {

/// Offloads a share of a tag's bytes (RatioChooser).
class RatioPolicy final : public OffloadPolicy {
 public:
  explicit RatioPolicy(Ratio ratio) : chooser_(ratio) {}

  PolicyDecision on_saved(const OfferedStorage& storage, TagStepStats& step) override;
  void on_event(StorageEvent event, DeviceId device, std::size_t index) override;
  bool on_first_use(std::size_t index, std::optional<std::size_t> last_saved) override;
  std::vector<BudgetMiss> on_end(bool had_backward, bool optimized) override;

  [[nodiscard]] std::uint64_t mismatches() const override { return chooser_.mismatches(); }

 private:
  RatioChooser chooser_;
};

}  // namespace spillway
