// SPDX-License-Identifier: Apache-2.0
#include "allocator/abi/edge.h"
#include "allocator/runtime/runtime.h"

#include <cstddef>
#include <cstring>

namespace spillway::abi {
namespace {

constexpr std::size_t kVersion1 = offsetof(spillway_device_stats, requested_bytes);

Status fill(int32_t device, spillway_device_stats* stats) {
  const auto known = [](std::uint64_t size) {
    return size == kVersion1 || size == sizeof(spillway_device_stats);
  };
  if (stats == nullptr || !known(stats->struct_size)) {
    return SPILLWAY_ERROR(
        Code::kInvalidArgument,
        "spillway_device_statistics: stats must point to a structure whose struct_size is "
        "sizeof(struct spillway_device_stats), " +
            std::to_string(sizeof(spillway_device_stats)) + " in this version");
  }
  SPILLWAY_ASSIGN_OR_RETURN(DeviceRuntime* const runtime,
                            Runtime::instance().device(DeviceId{device}));
  const HeapStats heap = runtime->heap().stats();
  const HostArenaStats host = runtime->arena().stats();
  const ResidencyStats residency = runtime->residency().stats();
  const spillway_device_stats now = {stats->struct_size,
                                     heap.allocated.count(),
                                     heap.reserved.count(),
                                     heap.reserved_peak.count(),
                                     residency.offloaded.count(),
                                     residency.stashed.count(),
                                     residency.fetched.count(),
                                     host.registered.count(),
                                     host.registered_peak.count(),
                                     host.in_slots.count(),
                                     heap.requested.count(),
                                     heap.allocated_blocks,
                                     runtime->pauses().stats().paused.count()};
  std::memcpy(stats, &now, now.struct_size);
  return {};
}

}  // namespace
}  // namespace spillway::abi

int spillway_device_statistics(int32_t device, spillway_device_stats* stats) {
  return spillway::abi::at_edge([&] { return spillway::abi::fill(device, stats); });
}

int spillway_step_end() {
  return spillway::abi::at_edge([] {
    spillway::Runtime::instance().step().end(spillway::StepEnd::kRequested);
    return spillway::Status();
  });
}

uint32_t spillway_abi_version() {
  return SPILLWAY_ABI_VERSION;
}
