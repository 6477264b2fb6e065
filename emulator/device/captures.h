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
  const void* thread;  // which began it
  Stream* origin;
  Graph* graph;
  std::vector<Stream*> streams;  // the origin, and those that waited for events of the capture
  bool invalidated = false;      // something forbidden happened: only its end is left
  bool ended = false;
};

/// The captures that go on, and what they forbid.
/// Threads: under the machine's lock. Ownership: borrows the graphs.
class Captures {
 public:
  explicit Captures(Graphs& graphs) : graphs_(graphs) {}

  /// Errors: CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED for the default stream, CUDA_ERROR_ILLEGAL_STATE
  /// for a stream that captures already.
  CUresult begin(Stream& stream, CUstreamCaptureMode mode);
  /// Gives the graph, or null where the capture has failed; its streams are free again.
  /// Errors: CUDA_ERROR_ILLEGAL_STATE, CUDA_ERROR_STREAM_CAPTURE_UNMATCHED, _WRONG_THREAD (the
  /// capture goes on after these), _INVALIDATED, _UNJOINED.
  CUresult end(Stream& stream, Graph** graph);

  /// The next node of a capturing stream. Requires: it captures.
  GraphNode* add(Stream& stream, Operation operation);
  /// A record on a capturing stream. Requires: it captures.
  static void record(Event& event, const Stream& stream);
  /// A wait where stream or event belong to a capture. Requires: one does.
  /// Errors: CUDA_ERROR_CAPTURED_EVENT, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, _ISOLATION, _MERGE,
  /// _IMPLICIT.
  static CUresult wait(Stream& stream, const Event& event);

  /// What the captures of all threads make of a call of this thread. What is forbidden invalidates
  /// the captures that forbid it.
  CUresult check(CaptureRule rule);
  /// And of a call on `stream`. Errors: CUDA_ERROR_NOT_SUPPORTED for nodes that are not emulated.
  CUresult check(CaptureRule rule, Stream& stream);
  /// And of a question about `event`, or a wait of the host for it.
  CUresult check(const Event& event);
  /// And of a wait for everything on a device.
  CUresult check_device(int device);

 private:
  static CUresult join(Stream& stream, const Event& event);

  Graphs& graphs_;
  std::vector<std::shared_ptr<Capture>> active_;
  std::uint64_t begun_ = 0;
};

}  // namespace spillway::emulator
