// SPDX-License-Identifier: Apache-2.0
#include "allocator/abi/edge.h"
#include "allocator/runtime/runtime.h"

namespace spillway::abi {
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
  return runtime->set_limit(
      kind == SPILLWAY_LIMIT_SOFT ? DeviceRuntime::Limit::kSoft : DeviceRuntime::Limit::kAbsolute,
      bytes == SPILLWAY_NO_LIMIT ? Bytes{} : Bytes{bytes});
}

}  // namespace
}  // namespace spillway::abi

int spillway_set_limit(int32_t device, int kind, uint64_t bytes) {
  return spillway::abi::at_edge([&] { return spillway::abi::set_limit(device, kind, bytes); });
}
