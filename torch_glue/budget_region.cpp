// SPDX-License-Identifier: Apache-2.0
#include "torch_glue/budget_region.h"

#include "allocator/runtime/runtime.h"
#include "allocator/tag/tag.h"
#include "torch_glue/saved_tensors/budget.h"
#include "torch_glue/saved_tensors/region_stack.h"
#include "torch_glue/streams.h"

#include <ATen/cuda/CUDAContextLight.h>
#include <c10/util/Exception.h>

#include <spillway/torch/budget.h>

#include <atomic>

namespace spillway {
namespace {

std::atomic<bool> in_use{false};  // Python has an error of its own

std::string text_of(const BudgetMiss& missed) {
  const std::string smallest = readable(missed.shortage.least);
  const std::string budget = "Spillway: a budget of " + std::to_string(missed.budget.count()) +
                             " bytes (" + readable(missed.budget) + ") ";
  const std::string device = " on GPU " + std::to_string(static_cast<int>(missed.device));
  const std::string step =
      "step " + std::to_string(missed.step) + " (first saved tensor: " + missed.shape + ")";
  if (missed.adapts) {
    return budget + "was exceeded" + device + ": " + step + " needed " + smallest +
           ". Later steps offload more where they can. Use a larger budget, a smaller batch or a "
           "shorter sequence where no step may exceed it";
  }
  return budget + "is too small" + device +
         ": with all of its activations offloaded or recomputed, " + step + " needs " +
         (missed.shortage.lower_bound
              ? "at least " + smallest + " (a lower bound: an optimizer's step may need more)"
              : smallest) +
         ", " + readable(missed.shortage.begin) +
         " of which were allocated before it saved its first activation. Use a budget of " +
         std::to_string(missed.shortage.least.count()) +
         " bytes, a smaller batch or a shorter sequence, or over_budget_warns to go on";
}

Budget budget_of(std::string_view text, const BudgetSettings& settings) {
  const double time_limit = settings.time_limit;
  auto budget = Budget::of(text, "budget");
  TORCH_CHECK_VALUE(budget.ok(), "Spillway: ", budget.status().detail());
  if (time_limit != 0) {
    const Status limited = budget.value().limit_time(time_limit, "time_limit");
    TORCH_CHECK_VALUE(limited.ok(), "Spillway: ", limited.detail());
  }
  budget.value().warns = settings.over_budget_warns;
  const std::uint64_t total = at::cuda::getDeviceProperties(current_device())->totalGlobalMem;
  TORCH_CHECK_VALUE(budget.value().bytes <= Bytes{total},
                    "Spillway: budget: expected at most ",
                    total,
                    " bytes, what the GPU has, not ",
                    text);
  return budget.value();
}

std::uint64_t enter(std::string_view text, const BudgetSettings& settings) {
  const Budget budget = budget_of(text, settings);
  const Status named = check_tag_name(settings.tag);
  TORCH_CHECK_VALUE(named.ok(), "Spillway: ", named.detail());
  if (!in_use.exchange(true)) set_miss_reporter(&throw_where_missed);
  throw_where_missed();
  take_end_of_memory();  // of an earlier backward pass
  RegionOptions options{intern_tag(settings.tag), Ratio::of(1).value()};
  options.names_memory = false;
  options.budget = budget;
  options.recompute = settings.recompute;
  options.prefetch = false;  // the plan determines the fetches
  const auto id = enter_region(options);
  TORCH_CHECK_VALUE(id.ok(), "Spillway: ", id.status().detail());
  return id.value();
}

}  // namespace

BudgetRegion::BudgetRegion(std::string_view budget, const BudgetSettings& settings)
    : id_(enter(budget, settings)) {}

BudgetRegion::~BudgetRegion() {
  SPILLWAY_CHECK(leave_region(id_).ok());
}

BudgetError::BudgetError(const std::string& text,
                         int device,
                         std::uint64_t budget,
                         std::uint64_t smallest,
                         bool lower_bound)
    : std::runtime_error(text),
      device_(device),
      budget_(budget),
      smallest_(smallest),
      lower_bound_(lower_bound) {}

void throw_where_missed() {
  if (!in_use) return;
  const auto missed = Runtime::instance().take_budget_miss();
  if (!missed) return;
  if (missed->warns) {
    TORCH_WARN(text_of(*missed));
    return;
  }
  throw BudgetError(text_of(*missed),
                    static_cast<int>(missed->device),
                    missed->budget.count(),
                    missed->shortage.least.count(),
                    missed->shortage.lower_bound);
}

}  // namespace spillway
