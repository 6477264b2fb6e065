// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "emulator/device/capture_rules.h"
#include "emulator/device/graphs.h"
#include "emulator/device/stream.h"

#include <memory>
#include <vector>

namespace spillway::emulator {

/// Streams whose work becomes the nodes of one graph instead of running.
struct Capture {
  std::uint64_t id;
  CUstreamCaptureMode mode;
  const void* thread;  // the thread that began it
  Stream* origin;
  Graph* graph;
  // the origin, and the streams that waited for events of the capture
  std::vector<Stream*> streams;
  bool invalidated = false;  // a forbidden call occurred: the capture can only be ended
  bool ended = false;
};

/// The captures in progress, and their restrictions.
/// Threads: under the machine's lock.
/// Ownership: borrows the graphs.
class Captures {
 public:
  explicit Captures(Graphs& graphs) : graphs_(graphs) {}

  /// Errors: CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED for the default stream, CUDA_ERROR_ILLEGAL_STATE
  /// for a stream that already captures.
  CUresult begin(Stream& stream, CUstreamCaptureMode mode);
  /// Returns the graph, or null if the capture has failed; its streams stop capturing.
  /// Errors: CUDA_ERROR_ILLEGAL_STATE, CUDA_ERROR_STREAM_CAPTURE_UNMATCHED, _WRONG_THREAD (the
  /// capture continues after these), _INVALIDATED, _UNJOINED.
  CUresult end(Stream& stream, Graph** graph);

  /// Appends the next node of a capturing stream. Requires: it captures.
  GraphNode* add(Stream& stream, Operation operation);
  /// A record on a capturing stream. Requires: it captures.
  static void record(Event& event, const Stream& stream);
  /// A wait whose stream or event belongs to a capture.
  /// Requires: one does.
  /// Errors: CUDA_ERROR_CAPTURED_EVENT, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, _ISOLATION, _MERGE,
  /// _IMPLICIT.
  static CUresult wait(Stream& stream, const Event& event);

  /// Checks a call of this thread against the captures of all threads. A forbidden call invalidates
  /// the captures that forbid it.
  CUresult check(CaptureRule rule);
  /// Checks a call on `stream`. Errors: CUDA_ERROR_NOT_SUPPORTED for nodes that are not emulated.
  CUresult check(CaptureRule rule, Stream& stream);
  /// Checks a query of `event`, or a wait of the host for it.
  CUresult check(const Event& event);
  /// Checks a wait for all work of a device.
  CUresult check_device(int device);

 private:
  static CUresult join(Stream& stream, const Event& event);

  Graphs& graphs_;
  std::vector<std::shared_ptr<Capture>> active_;
  std::uint64_t begun_ = 0;
};

}  // namespace spillway::emulator
