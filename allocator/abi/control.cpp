// SPDX-License-Identifier: Apache-2.0
#include "allocator/abi/edge.h"
#include "allocator/lifetime/recorder.h"
#include "allocator/runtime/runtime.h"
#include "allocator/tag/tag.h"

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

namespace {

Status set_limit(int32_t device, int kind, uint64_t bytes) {
  if (kind != SPILLWAY_LIMIT_HARD && kind != SPILLWAY_LIMIT_SOFT) {
    return SPILLWAY_ERROR(Code::kInvalidArgument,
                          "spillway_set_limit: kind is " + std::to_string(kind) +
                              ": expected SPILLWAY_LIMIT_HARD or SPILLWAY_LIMIT_SOFT");
  }
  if (bytes == 0) {
    return SPILLWAY_ERROR(Code::kInvalidArgument,
                          "spillway_set_limit: bytes is 0: expected a size above 0 and at most the "
                          "device's memory, or SPILLWAY_NO_LIMIT");
  }
  SPILLWAY_ASSIGN_OR_RETURN(DeviceRuntime* const runtime,
                            Runtime::instance().device(DeviceId{device}));
  return runtime->limits().set(
      kind == SPILLWAY_LIMIT_SOFT ? DeviceLimits::Limit::kSoft : DeviceLimits::Limit::kAbsolute,
      bytes == SPILLWAY_NO_LIMIT ? Bytes{} : Bytes{bytes});
}

}  // namespace

namespace {

Status push(const char* tag) {
  if (tag == nullptr) {
    return SPILLWAY_ERROR(Code::kInvalidArgument,
                          "spillway_tag_push: tag is null. Pass a path such as \"model/layer\".");
  }
  return push_tag(tag).status();
}

Status pop() {
  if (pop_tag()) return {};
  return SPILLWAY_ERROR(
      Code::kNotReady,
      "spillway_tag_pop: this thread has no open tag. Call spillway_tag_push first.");
}

}  // namespace

namespace {

Status begin(int32_t device, const char* path) {
  if (path == nullptr || *path == '\0') {
    return SPILLWAY_ERROR(Code::kInvalidArgument,
                          "spillway_trace_begin: path is null or empty. Pass the file to write.");
  }
  SPILLWAY_ASSIGN_OR_RETURN(DeviceRuntime* const runtime,
                            Runtime::instance().device(DeviceId{device}));
  // The records cannot be queried through this interface: the file has them.
  return runtime->start_recording(path, 0);
}

}  // namespace

namespace {

Status pattern_of(const char* call, const char* pattern) {
  if (pattern != nullptr) return {};
  return SPILLWAY_ERROR(
      Code::kInvalidArgument,
      std::string(call) + ": pattern is null. Pass a tag or a pattern such as \"model/*\".");
}

Status pause(const char* pattern, uint32_t flags, uint64_t* released) {
  SPILLWAY_RETURN_IF_ERROR(pattern_of("spillway_pause", pattern));
  if ((flags & ~static_cast<uint32_t>(SPILLWAY_PAUSE_DISCARD)) != 0) {
    return SPILLWAY_ERROR(Code::kInvalidArgument,
                          "spillway_pause: flags is " + std::to_string(flags) +
                              ": expected 0 or SPILLWAY_PAUSE_DISCARD");
  }
  const bool discard = (flags & SPILLWAY_PAUSE_DISCARD) != 0;
  SPILLWAY_ASSIGN_OR_RETURN(const PauseResult result,
                            Runtime::instance().pauses().pause(
                                {{pattern, discard ? Contents::kDiscarded : Contents::kKept}}));
  if (released != nullptr) *released = result.released.count();
  return {};
}

Status resume(const char* pattern) {
  SPILLWAY_RETURN_IF_ERROR(pattern_of("spillway_resume", pattern));
  return Runtime::instance().pauses().resume({pattern}).status();
}

Status allow(const char* pattern, int allowed) {
  SPILLWAY_RETURN_IF_ERROR(pattern_of("spillway_allow_eviction", pattern));
  if (allowed != 0 && allowed != 1) {
    return SPILLWAY_ERROR(
        Code::kInvalidArgument,
        "spillway_allow_eviction: allowed is " + std::to_string(allowed) + ": expected 1 or 0");
  }
  Evictable& evictable = Runtime::instance().pauses().evictable();
  return allowed != 0 ? evictable.allow(pattern) : evictable.forbid(pattern);
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

int spillway_set_limit(int32_t device, int kind, uint64_t bytes) {
  return spillway::abi::at_edge([&] { return spillway::abi::set_limit(device, kind, bytes); });
}

int spillway_tag_push(const char* tag) {
  return spillway::abi::at_edge([&] { return spillway::abi::push(tag); });
}

int spillway_tag_pop() {
  return spillway::abi::at_edge(spillway::abi::pop);
}

int spillway_trace_begin(int32_t device, const char* path) {
  return spillway::abi::at_edge([&] { return spillway::abi::begin(device, path); });
}

int spillway_trace_end() {
  return spillway::abi::at_edge([] { return spillway::LifetimeRecorder::instance().stop(); });
}

int spillway_pause(const char* pattern, uint32_t flags, uint64_t* released) {
  return spillway::abi::at_edge([&] { return spillway::abi::pause(pattern, flags, released); });
}

int spillway_resume(const char* pattern) {
  return spillway::abi::at_edge([&] { return spillway::abi::resume(pattern); });
}

int spillway_allow_eviction(const char* pattern, int allowed) {
  return spillway::abi::at_edge([&] { return spillway::abi::allow(pattern, allowed); });
}
