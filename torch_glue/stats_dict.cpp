// SPDX-License-Identifier: Apache-2.0
#include "allocator/runtime/runtime.h"
#include "allocator/tag/tag.h"
#include "torch_glue/cuda_allocator/cuda_allocator.h"
#include "torch_glue/model_state/managed_storages.h"
#include "torch_glue/model_state/overlapped_step.h"
#include "torch_glue/modules.h"
#include "torch_glue/pluggable/hooks.h"
#include "torch_glue/saved_storage/pending_sources.h"

namespace spillway {
namespace {

namespace py = pybind11;
using py::literals::operator""_a;

py::dict step_dict(const TagStepStats& step) {
  py::dict skipped;
  for (size_t reason = 0; reason < step.skipped.size(); ++reason) {
    const SkipCount& count = step.skipped[reason];
    if (count.storages == 0) continue;
    const std::string name(skip_reason_name(static_cast<SkipReason>(reason)));
    skipped[py::str(name)] =
        py::dict("storages"_a = count.storages, "bytes"_a = count.bytes.count());
  }
  return py::dict("step"_a = step.step,
                  "offloadable_bytes"_a = step.offloadable.count(),
                  "offloaded_bytes"_a = step.offloaded.count(),
                  "copied_bytes"_a = step.copied.count(),
                  "fetched_bytes"_a = step.fetched.count(),
                  "left_to_recompute_bytes"_a = step.left_to_recompute.count(),
                  "recomputed_bytes"_a = step.recomputed.count(),
                  "skipped"_a = skipped);
}

py::dict heap_dict(const HeapStats& heap) {
  return py::dict("allocated_bytes"_a = heap.allocated.count(),
                  "allocated_peak_bytes"_a = heap.allocated_peak.count(),
                  "requested_bytes"_a = heap.requested.count(),
                  "reserved_bytes"_a = heap.reserved.count(),
                  "reserved_peak_bytes"_a = heap.reserved_peak.count(),
                  "offloaded_at_allocated_peak_bytes"_a = heap.offloaded_at_allocated_peak.count(),
                  "offloaded_at_reserved_peak_bytes"_a = heap.offloaded_at_reserved_peak.count(),
                  "evicted_bytes"_a = heap.evicted.count(),
                  "cached_bytes"_a = heap.cached.count(),
                  "rounding_bytes"_a = heap.rounding.count(),
                  "stranded_bytes"_a = heap.stranded.count(),
                  "pending_bytes"_a = heap.pending.count(),
                  "allocated_blocks"_a = heap.allocated_blocks,
                  "allocations"_a = heap.allocations,
                  "frees"_a = heap.frees,
                  "driver_allocations"_a = heap.driver_allocations,
                  "driver_releases"_a = heap.driver_releases,
                  "fence_waits"_a = heap.fence_waits,
                  "out_of_memory"_a = heap.out_of_memory,
                  "bad_frees"_a = heap.bad_frees,
                  "over_budget"_a = heap.over_budget,
                  "replayed_allocations"_a = heap.replayed_allocations,
                  "replay_mismatches"_a = heap.replay_mismatches);
}

py::dict host_dict(const HostArenaStats& host) {
  py::dict refused;
  for (size_t reason = 0; reason < host.refused.size(); ++reason) {
    const std::string name(pin_refusal_name(static_cast<PinRefusal>(reason)));
    refused[py::str(name)] = host.refused.at(reason);
  }
  return py::dict("pinned_bytes"_a = host.registered.count(),
                  "pinned_peak_bytes"_a = host.registered_peak.count(),
                  "in_slots_bytes"_a = host.in_slots.count(),
                  "in_slots_peak_bytes"_a = host.in_slots_peak.count(),
                  "registrations"_a = host.registrations,
                  "huge_bytes"_a = host.huge.count(),
                  "advised_bytes"_a = host.advised.count(),
                  "on_node_bytes"_a = host.on_node.count(),
                  "node"_a = host.node,
                  "refused"_a = refused);
}

py::dict residency_dict(const ResidencyStats& residency) {
  return py::dict("stashed_bytes"_a = residency.stashed.count(),
                  "fetched_bytes"_a = residency.fetched.count(),
                  "on_host_bytes"_a = residency.on_host.count(),
                  "offloaded_bytes"_a = residency.offloaded.count(),
                  "stashes"_a = residency.stashes,
                  "fetches"_a = residency.fetches,
                  "dropped"_a = residency.dropped);
}

py::dict pauses_dict(const PauseStats& pauses) {
  return py::dict("blocks"_a = pauses.blocks,
                  "paused_bytes"_a = pauses.paused.count(),
                  "on_host_bytes"_a = pauses.on_host.count(),
                  "copied_out_bytes"_a = pauses.copied_out.count(),
                  "copied_in_bytes"_a = pauses.copied_in.count());
}

py::dict model_state_dict() {
  const ManagedStats stats = ManagedStorages::instance().stats();
  py::dict classes;
  for (std::size_t i = 0; i < stats.classes.size(); ++i) {
    const ManagedStats::OfClass& of = stats.classes.at(i);
    classes[model_class_name(static_cast<ModelClass>(i))] =
        py::dict("storages"_a = of.storages,
                 "resident_bytes"_a = of.resident.count(),
                 "offloaded_bytes"_a = of.offloaded.count());
  }
  py::dict reasons;
  for (std::size_t i = 0; i < stats.resident.size(); ++i) {
    const ResidentCount& of = stats.resident.at(i);
    if (of.storages == 0) continue;
    reasons[resident_reason_name(static_cast<ResidentReason>(i))] =
        py::dict("storages"_a = of.storages, "bytes"_a = of.bytes.count());
  }
  return py::dict("classes"_a = classes,
                  "copied_bytes"_a = stats.copied_out.count(),
                  "fetched_bytes"_a = stats.fetched.count(),
                  "prefetched_bytes"_a = stats.prefetched.count(),
                  "dropped_bytes"_a = stats.dropped.count(),
                  "overlapped_slices"_a = overlapped_slices(),
                  "resident_reasons"_a = reasons);
}

}  // namespace

py::dict stats_dict() {
  const RuntimeStats stats = Runtime::instance().stats();
  py::dict tags;
  for (const TagStats& tag : stats.tags) {
    tags[py::str(shown_tag(tag.tag))] = py::dict("ratio"_a = tag.ratio,
                                                 "plan_mismatches"_a = tag.plan_mismatches,
                                                 "running"_a = step_dict(tag.running),
                                                 "last"_a = step_dict(tag.last));
  }
  py::dict devices;
  for (const DeviceStats& device : stats.devices) {
    devices[py::int_(static_cast<int>(device.device))] =
        py::dict("heap"_a = heap_dict(device.heap),
                 "host"_a = host_dict(device.host),
                 "residency"_a = residency_dict(device.residency),
                 "pauses"_a = pauses_dict(device.pauses));
  }
  const PendingSources& pending = PendingSources::instance();
  const CannotHelp& why = stats.cannot_help;
  py::object cannot_help = py::none();
  if (why.reason != HelplessReason::kNone) {
    cannot_help = py::dict("reason"_a = std::string(helpless_reason_name(why.reason)),
                           "bytes"_a = why.bytes.count(),
                           "device"_a = static_cast<int>(why.device));
  }
  return py::dict("steps"_a = stats.steps,
                  "saved_tensor_handles"_a = stats.saved_tensor_handles,
                  "allocator"_a = ccc::allocator.load()->name(),
                  "uses_spillway"_a = serves_torch(),
                  "emulated"_a = !stats.devices.empty() && driver::emulated(),
                  "cannot_help"_a = cannot_help,
                  "driver"_a = py::dict("allocations"_a = stats.driver.allocations,
                                        "registrations"_a = stats.driver.registrations,
                                        "host_syncs"_a = stats.driver.host_syncs,
                                        "lost_streams"_a = stats.driver.lost_streams),
                  "pending_sources"_a = py::dict("bytes"_a = pending.bytes().count(),
                                                 "peak_bytes"_a = pending.bytes_peak().count()),
                  "model_state"_a = model_state_dict(),
                  "tags"_a = tags,
                  "devices"_a = devices);
}

}  // namespace spillway
