// SPDX-License-Identifier: Apache-2.0
#include "allocator/abi/edge.h"
#include "allocator/runtime/runtime.h"

namespace spillway::abi {
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

int spillway_pause(const char* pattern, uint32_t flags, uint64_t* released) {
  return spillway::abi::at_edge([&] { return spillway::abi::pause(pattern, flags, released); });
}

int spillway_resume(const char* pattern) {
  return spillway::abi::at_edge([&] { return spillway::abi::resume(pattern); });
}

int spillway_allow_eviction(const char* pattern, int allowed) {
  return spillway::abi::at_edge([&] { return spillway::abi::allow(pattern, allowed); });
}
