// SPDX-License-Identifier: Apache-2.0
#include "torch_glue/region.h"

#include "allocator/driver/span_log.h"
#include "allocator/runtime/runtime.h"
#include "allocator/tag/tag.h"
#include "torch_glue/base/streams.h"
#include "torch_glue/budget_region.h"
#include "torch_glue/kernels.h"
#include "torch_glue/saved_tensors/pending_sources.h"
#include "torch_glue/saved_tensors/region_stack.h"

#include <c10/cuda/CUDAFunctions.h>
#include <c10/util/Exception.h>

#include <spillway/torch/region.h>

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

}  // namespace spillway
