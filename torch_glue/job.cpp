// SPDX-License-Identifier: Apache-2.0
#include "torch_glue/job.h"

#include "allocator/base/env.h"
#include "allocator/base/settings.h"
#include "allocator/tag/tag.h"
#include "torch_glue/cuda_allocator/cuda_allocator.h"
#include "torch_glue/saved_tensors/region_stack.h"

#include <optional>
#include <string>

namespace spillway {

namespace {

/// From SPILLWAY_BUDGET, SPILLWAY_TIME_LIMIT and SPILLWAY_OVER_BUDGET.
Result<std::optional<Budget>> asked_budget() {
  SPILLWAY_ASSIGN_OR_RETURN(const auto text, env::text("SPILLWAY_BUDGET"));
  SPILLWAY_ASSIGN_OR_RETURN(const auto limit, env::number("SPILLWAY_TIME_LIMIT"));
  SPILLWAY_ASSIGN_OR_RETURN(const auto over, env::text("SPILLWAY_OVER_BUDGET"));
  if (!text && !limit) return std::optional<Budget>();
  SPILLWAY_ASSIGN_OR_RETURN(Budget budget, Budget::of(text.value_or("auto"), "SPILLWAY_BUDGET"));
  budget.slowdown = limit.value_or(0);
  budget.warns = over == "warn";
  return std::optional<Budget>(budget);
}

}  // namespace

Status start_job() {
  SPILLWAY_RETURN_IF_ERROR(settings::check_environment(settings::Section::kJob));
  SPILLWAY_ASSIGN_OR_RETURN(const auto budget, asked_budget());
  SPILLWAY_ASSIGN_OR_RETURN(const auto share, env::number("SPILLWAY_OFFLOAD_RATIO"));
  SPILLWAY_ASSIGN_OR_RETURN(const auto allocator, env::text("SPILLWAY_ALLOCATOR"));
  SPILLWAY_ASSIGN_OR_RETURN(const auto recompute, env::text("SPILLWAY_RECOMPUTE"));
  SPILLWAY_ASSIGN_OR_RETURN(const Ratio ratio, Ratio::of(budget ? 1.0 : share.value_or(0)));
  if (allocator != "torch") SPILLWAY_RETURN_IF_ERROR(use_allocator());
  if (!budget && !share && recompute != "1") return {};
  RegionOptions options{intern_tag("job"), ratio};
  options.names_memory = false;
  options.budget = budget;
  options.recompute = recompute ? recompute == "1" : budget.has_value();  // as spillway.offload()
  options.prefetch = !budget;  // as regions with a budget
  return set_process_region(options);
}

}  // namespace spillway
