// SPDX-License-Identifier: Apache-2.0
#include "torch_glue/region.h"

#include "allocator/driver/span_log.h"
#include "allocator/runtime/runtime.h"
#include "allocator/tag/tag.h"
#include "torch_glue/base/streams.h"
#include "torch_glue/kernels.h"
#include "torch_glue/saved_storage/budget.h"
#include "torch_glue/saved_storage/pending_sources.h"
#include "torch_glue/saved_tensors/region_stack.h"

#include <ATen/cuda/CUDAContextLight.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/util/Exception.h>

#include <spillway/torch/budget.h>
#include <spillway/torch/region.h>

#include <algorithm>
#include <atomic>

namespace spillway {
namespace {

std::uint64_t enter(double offload_ratio, std::string_view tag, const RegionSettings& settings) {
  const auto ratio = Ratio::of(offload_ratio);
  TORCH_CHECK_VALUE(ratio.ok(), "Spillway: ", ratio.status().detail());
  const Status named = tag.empty() ? Status() : check_tag_name(tag);
  TORCH_CHECK_VALUE(named.ok(), "Spillway: ", named.detail());
  RegionOptions options{intern_tag(tag), ratio.value()};
  if (settings.min_bytes) options.min_bytes = Bytes{*settings.min_bytes};
  if (settings.prefetch_headroom) options.prefetch_headroom = Bytes{*settings.prefetch_headroom};
  options.max_in_flight = settings.max_in_flight;
  const auto id = enter_region(options);
  TORCH_CHECK_VALUE(id.ok(), "Spillway: ", id.status().detail());
  return id.value();
}

}  // namespace

OffloadRegion::OffloadRegion(double offload_ratio,
                             std::string_view tag,
                             const RegionSettings& settings)
    : id_(enter(offload_ratio, tag, settings)) {}

OffloadRegion::~OffloadRegion() {
  SPILLWAY_CHECK(leave_region(id_).ok());
}

RecomputeRegion::RecomputeRegion() {
  const auto id = enter_recomputing_region();
  TORCH_CHECK_VALUE(id.ok(), "Spillway: ", id.status().detail());
  id_ = id.value();
}

RecomputeRegion::~RecomputeRegion() {
  SPILLWAY_CHECK(leave_region(id_).ok());
}

KeepingRegion::KeepingRegion() : id_(enter_keeping_region()) {}

KeepingRegion::~KeepingRegion() {
  SPILLWAY_CHECK(leave_region(id_).ok());
}

TagTotals last_step(std::string_view tag) {
  TagTotals totals;
  for (const TagStats& stats : Runtime::instance().stats().tags) {
    if (tag_name(stats.tag) != tag) continue;
    const TagStepStats& last = stats.last;
    totals.offloadable = last.offloadable.count();
    totals.offloaded = last.offloaded.count();
    totals.copied = last.copied.count();
    totals.fetched = last.fetched.count();
    totals.left_to_recompute = last.left_to_recompute.count();
    totals.recomputed = last.recomputed.count();
    for (std::size_t reason = 0; reason < last.skipped.size(); ++reason) {
      if (last.skipped[reason].storages == 0) continue;
      totals.skipped.emplace(skip_reason_name(static_cast<SkipReason>(reason)),
                             last.skipped[reason].bytes.count());
    }
  }
  return totals;
}

namespace {

/// Marks the computing stream of each device in use, so that a report knows the step's end there.
void mark_computing_streams() {
  for (c10::DeviceIndex index = 0; index < c10::cuda::device_count(); ++index) {
    if (!c10::cuda::hasPrimaryContext(index)) continue;
    const auto device = Runtime::instance().device(DeviceId{index});
    const driver::Stream stream = stream_of(current_stream(DeviceId{index}));
    if (device.ok()) driver::SpanLog::instance().computes_on(device.value()->device(), stream);
  }
}

}  // namespace

void end_step(StepEnd reason) {
  PendingSources::instance().poll();
  if (driver::SpanLog::on()) mark_computing_streams();
  kernels_step_ended();
  Runtime::instance().step().end(reason);
  report_missed_budget(ends_optimizer_step(reason));
}

void end_step() {
  end_step(StepEnd::kRequested);
}

namespace {

std::atomic<bool> in_use{false};  // Python has an error of its own

/// Activations of a step that needs more than it began with, in addition to that.
Bytes activations_of(const BudgetShortage& shortage) {
  return std::min(shortage.activations, saturating_sub(shortage.least, shortage.begin));
}

const char* why_over(const BudgetShortage& need) {
  return need.host_memory_short
             ? ", because no more host memory could be pinned for its activations"
             : ", although all of its activations were offloaded or recomputed";
}

std::string text_of(const BudgetMiss& missed) {
  const BudgetShortage& need = missed.shortage;
  const Bytes begin = std::min(need.begin, need.least);
  const Bytes activations = activations_of(need);
  const std::string budget = "Spillway: budget " + readable(missed.budget);
  const std::string step = "step " + std::to_string(missed.step) +
                           " (first saved tensor: " + missed.first_saved_shape + ")";
  const std::string size = readable(need.least) + " (" + readable(begin) +
                           " allocated before its first saved tensor, activations " +
                           readable(activations) + ", other " +
                           readable(need.least - begin - activations) + ") on GPU " +
                           std::to_string(static_cast<int>(missed.device));
  if (missed.adapts) {
    return budget + " was exceeded: " + step + " needed " + size +
           ". Later steps offload more where they can. If no step may exceed it, use a larger "
           "budget, a smaller batch or a shorter sequence.";
  }
  return budget + " is too small: " + step + " needs " + (need.lower_bound ? "at least " : "") +
         size + why_over(need) +
         (need.lower_bound ? ". This is a lower bound: an optimizer step may need more" : "") +
         ". Use " + (need.host_memory_short ? "a larger limit of pinned host memory, " : "") +
         "a smaller batch, a shorter sequence, " + (missed.warns ? "or " : "") + "--budget " +
         setting_of(need.least) +
         (missed.warns ? "." : ", or --over-budget warn (over_budget_warns) to exceed the budget.");
}

/// Throws the miss, or warns of it.
void report(BudgetMiss missed, bool optimized) {
  // The optimizer's states are allocated in its first step.
  if (missed.first) missed.shortage.lower_bound = true;
  if (missed.first && optimized) missed.warns = true;
  if (missed.warns) {
    TORCH_WARN(text_of(missed));
    return;
  }
  throw BudgetError(text_of(missed),
                    static_cast<int>(missed.device),
                    missed.budget.count(),
                    missed.shortage.least.count(),
                    missed.shortage.lower_bound,
                    std::min(missed.shortage.begin, missed.shortage.least).count(),
                    activations_of(missed.shortage).count());
}

/// A miss before the first optimizer step waits for its end, which may follow.
void report_after_backward() {
  auto missed = Runtime::instance().step().take_budget_miss(/*keep_first=*/true);
  if (missed) report(*std::move(missed), /*optimized=*/false);
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
                    "Spillway: budget=",
                    text,
                    ": expected at most the memory of the GPU, ",
                    readable(Bytes{total}));
  return budget.value();
}

std::uint64_t enter(std::string_view text, const BudgetSettings& settings) {
  const Budget budget = budget_of(text, settings);
  const Status named = check_tag_name(settings.tag);
  TORCH_CHECK_VALUE(named.ok(), "Spillway: ", named.detail());
  if (!in_use.exchange(true)) set_miss_reporter(&report_after_backward);
  report_missed_budget();
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
                         bool lower_bound,
                         std::uint64_t begin,
                         std::uint64_t activations)
    : std::runtime_error(text),
      device_(device),
      budget_(budget),
      smallest_(smallest),
      lower_bound_(lower_bound),
      begin_(begin),
      activations_(activations) {}

void report_missed_budget(bool optimized) {
  if (!in_use) return;
  auto missed = Runtime::instance().step().take_budget_miss();
  if (missed) report(*std::move(missed), optimized);
}

}  // namespace spillway
