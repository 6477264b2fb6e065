// SPDX-License-Identifier: Apache-2.0
#include "torch_glue/job.h"

#include "allocator/base/env.h"
#include "allocator/tag/tag.h"
#include "torch_glue/cuda_allocator.h"
#include "torch_glue/saved_tensors/region_stack.h"

#include <optional>
#include <string>

namespace spillway {

namespace {

/// From SPILLWAY_BUDGET, SPILLWAY_TIME_LIMIT and SPILLWAY_OVER_BUDGET.
Result<std::optional<Budget>> asked_budget() {
  SPILLWAY_ASSIGN_OR_RETURN(const auto text, env::text("SPILLWAY_BUDGET"));
  SPILLWAY_ASSIGN_OR_RETURN(const auto limit, env::number("SPILLWAY_TIME_LIMIT"));
  if (!text && !limit) return std::optional<Budget>();
  SPILLWAY_ASSIGN_OR_RETURN(Budget budget, Budget::of(text.value_or("auto"), "SPILLWAY_BUDGET"));
  if (limit) SPILLWAY_RETURN_IF_ERROR(budget.limit_time(*limit, "SPILLWAY_TIME_LIMIT"));
  SPILLWAY_ASSIGN_OR_RETURN(const auto over, env::text("SPILLWAY_OVER_BUDGET"));
  if (over) SPILLWAY_RETURN_IF_ERROR(budget.set_over_budget(*over, "SPILLWAY_OVER_BUDGET"));
  return std::optional<Budget>(budget);
}

}  // namespace

Status start_job() {
  SPILLWAY_ASSIGN_OR_RETURN(const auto budget, asked_budget());
  SPILLWAY_ASSIGN_OR_RETURN(const auto share, env::number("SPILLWAY_OFFLOAD_RATIO"));
  SPILLWAY_ASSIGN_OR_RETURN(const auto allocator,
                            env::choice("SPILLWAY_ALLOCATOR", {"spillway", "torch"}));
  SPILLWAY_ASSIGN_OR_RETURN(const auto recompute, env::flag("SPILLWAY_RECOMPUTE"));
  if (budget && share) {
    return SPILLWAY_ERROR(
        Code::kInvalidArgument,
        "SPILLWAY_BUDGET, or SPILLWAY_TIME_LIMIT, and SPILLWAY_OFFLOAD_RATIO. Set one of them.");
  }
  const auto ratio = Ratio::of(budget ? 1.0 : share.value_or(0));
  if (!ratio.ok()) {
    return SPILLWAY_ERROR(Code::kInvalidArgument,
                          "SPILLWAY_OFFLOAD_RATIO: " + ratio.status().detail());
  }
  if (allocator != "torch") SPILLWAY_RETURN_IF_ERROR(use_allocator());
  if (!budget && !share && !recompute.value_or(false)) return {};
  RegionOptions options{intern_tag("job"), ratio.value()};
  options.names_memory = false;
  options.budget = budget;
  options.recompute = recompute.value_or(budget.has_value());  // as spillway.offload()
  options.prefetch = !budget;                                  // as regions with a budget
  return set_process_region(options);
}

}  // namespace spillway
