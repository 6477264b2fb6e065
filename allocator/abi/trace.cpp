// SPDX-License-Identifier: Apache-2.0
#include "allocator/abi/edge.h"
#include "allocator/lifetime/recorder.h"
#include "allocator/runtime/runtime.h"

namespace spillway::abi {
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
}  // namespace spillway::abi

int spillway_trace_begin(int32_t device, const char* path) {
  return spillway::abi::at_edge([&] { return spillway::abi::begin(device, path); });
}

int spillway_trace_end() {
  return spillway::abi::at_edge([] { return spillway::LifetimeRecorder::instance().stop(); });
}
