// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <string_view>

namespace spillway::emulator {

/// Restrictions of a driver function while a stream captures.
struct CaptureRule {
  bool by_mode = false;  // prohibited according to the capture modes of the captures and the thread
  bool waits = false;    // must not be called on a capturing stream
  bool asks = false;     // queries the stream only: always allowed
  bool absent = false;   // would be a node that is not emulated
};

/// The single list of functions that captures forbid. All others are allowed, or become nodes.
/// Captured events are checked in Captures::check.
// NOLINTNEXTLINE(readability-function-size): a list
constexpr CaptureRule capture_rule(std::string_view function) {
  constexpr auto kByMode = std::to_array<std::string_view>({
      "cuMemAlloc",
      "cuMemAllocPitch",
      "cuMemAllocManaged",
      "cuMemFree",
      "cuMemHostAlloc",
      "cuMemAllocHost",
      "cuMemFreeHost",
      "cuMemHostRegister",
      "cuMemHostUnregister",
      "cuMemAddressReserve",
      "cuMemAddressFree",
      "cuMemCreate",
      "cuMemRelease",
      "cuMemMap",
      "cuMemUnmap",
      "cuMemSetAccess",
      "cuMemcpy",
      "cuMemcpy2D",
      "cuMemcpyPeer",
      "cuMemcpyHtoD",
      "cuMemcpyDtoH",
      "cuMemcpyDtoD",
      "cuMemsetD8",
      "cuMemsetD16",
      "cuMemsetD32",
      "cuMemsetD2D8",
      "cuMemsetD2D16",
      "cuMemsetD2D32",
      "cuStreamSynchronize",
      "cuStreamQuery",
      "cuCtxSynchronize",
      "cuIpcOpenMemHandle",
      "cuIpcCloseMemHandle",
  });
  constexpr auto kWaits =
      std::to_array<std::string_view>({"cuStreamSynchronize", "cuStreamQuery", "cuStreamDestroy"});
  constexpr auto kAsks = std::to_array<std::string_view>({
      "cuStreamIsCapturing",
      "cuStreamGetCaptureInfo",
      "cuStreamBeginCapture",
      "cuStreamEndCapture",
      "cuStreamGetPriority",
      "cuStreamGetFlags",
      "cuStreamGetDevice",
      "cuStreamGetId",
      "cuStreamGetCtx",
      "cuGraphUpload",
  });
  constexpr auto kAbsent = std::to_array<std::string_view>({
      "cuMemAllocAsync",
      "cuMemAllocFromPoolAsync",
      "cuMemFreeAsync",
      "cuMemcpyBatchAsync",
      "cuGraphLaunch",
      "cuStreamWriteValue32",
      "cuStreamWriteValue64",
      "cuStreamWaitValue32",
      "cuStreamWaitValue64",
      "cuStreamBatchMemOp",
  });
  const auto in = [&](const auto& list) {
    return std::find(list.begin(), list.end(), function) != list.end();
  };
  return {in(kByMode), in(kWaits), in(kAsks), in(kAbsent)};
}

}  // namespace spillway::emulator
