// SPDX-License-Identifier: Apache-2.0
#include "emulator/device/captures.h"

#include "emulator/device/thread_state.h"
#include "emulator/device/views.h"

#include <algorithm>
#include <utility>

namespace spillway::emulator {
namespace {

CUresult invalidate(Capture& capture, CUresult why) {
  capture.invalidated = true;
  return why;
}

/// Whether the end of the origin is ordered after everything in the capture.
bool all_joined(const Capture& capture) {
  std::vector<bool> before(capture.graph->nodes.size());
  std::vector<const GraphNode*> left(capture.origin->tail.begin(), capture.origin->tail.end());
  while (!left.empty()) {
    const GraphNode* node = left.back();
    left.pop_back();
    if (before[node->index]) continue;
    before[node->index] = true;
    left.insert(left.end(), node->after.begin(), node->after.end());
  }
  return std::all_of(capture.streams.begin(), capture.streams.end(), [&](const Stream* stream) {
    return std::all_of(stream->tail.begin(), stream->tail.end(), [&](const GraphNode* node) {
      return before[node->index];
    });
  });
}

void release(Capture& capture) {
  capture.ended = true;
  captures_going_on.fetch_sub(1);
  capture.graph->capturing = false;
  for (Stream* stream : capture.streams) {
    stream->capture = nullptr;
    stream->tail.clear();
  }
}

}  // namespace

CUresult Captures::begin(Stream& stream, CUstreamCaptureMode mode) {
  if (stream.legacy) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  if (stream.capture != nullptr) return CUDA_ERROR_ILLEGAL_STATE;
  stream.capture = std::make_shared<Capture>(
      Capture{++begun_, mode, &thread_state(), &stream, graphs_.create(), {&stream}});
  active_.push_back(stream.capture);
  captures_going_on.fetch_add(1);
  return CUDA_SUCCESS;
}

CUresult Captures::end(Stream& stream, Graph** graph) {
  *graph = nullptr;
  const std::shared_ptr<Capture> capture = stream.capture;
  if (capture == nullptr) return CUDA_ERROR_ILLEGAL_STATE;
  if (capture->origin != &stream) {
    return invalidate(*capture, CUDA_ERROR_STREAM_CAPTURE_UNMATCHED);
  }
  if (capture->mode != CU_STREAM_CAPTURE_MODE_RELAXED && capture->thread != &thread_state()) {
    return CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD;
  }
  const bool joined = all_joined(*capture);
  release(*capture);
  std::erase(active_, capture);
  if (!capture->invalidated && joined) {
    *graph = capture->graph;
    return CUDA_SUCCESS;
  }
  graphs_.destroy(reinterpret_cast<CUgraph>(capture->graph));
  return capture->invalidated ? CUDA_ERROR_STREAM_CAPTURE_INVALIDATED
                              : CUDA_ERROR_STREAM_CAPTURE_UNJOINED;
}

GraphNode* Captures::add(Stream& stream, Operation operation) {
  if (operation.kind == CU_GRAPH_NODE_TYPE_KERNEL) {
    operation.cost = std::exchange(stream.next_cost, Cost());
  }
  GraphNode* node = graphs_.add(*stream.capture->graph, std::move(operation), stream.tail);
  stream.tail = {node};
  return node;
}

void Captures::record(Event& event, const Stream& stream) {
  event.capture = stream.capture;
  event.tail = stream.tail;
}

CUresult Captures::wait(Stream& stream, const Event& event) {
  if (event.capture != nullptr) return join(stream, event);
  if (event.stream == nullptr) return CUDA_SUCCESS;  // never recorded
  return invalidate(*stream.capture, CUDA_ERROR_STREAM_CAPTURE_ISOLATION);
}

CUresult Captures::join(Stream& stream, const Event& event) {
  Capture& capture = *event.capture;
  if (capture.ended) {
    if (stream.capture != nullptr) stream.capture->invalidated = true;
    return CUDA_ERROR_CAPTURED_EVENT;
  }
  if (capture.invalidated) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  if (stream.legacy) return invalidate(capture, CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
  if (stream.capture == nullptr) {
    stream.capture = event.capture;
    capture.streams.push_back(&stream);
  } else if (stream.capture != event.capture) {
    stream.capture->invalidated = true;
    return invalidate(capture, CUDA_ERROR_STREAM_CAPTURE_MERGE);
  }
  for (GraphNode* node : event.tail) {
    if (std::find(stream.tail.begin(), stream.tail.end(), node) == stream.tail.end()) {
      stream.tail.push_back(node);
    }
  }
  return CUDA_SUCCESS;
}

CUresult Captures::check(CaptureRule rule) {
  const ThreadState& here = thread_state();
  if (!rule.by_mode || active_.empty() || here.capture_mode == CU_STREAM_CAPTURE_MODE_RELAXED) {
    return CUDA_SUCCESS;
  }
  CUresult result = CUDA_SUCCESS;
  for (const auto& capture : active_) {
    const bool forbids = capture->thread == &here
                             ? capture->mode != CU_STREAM_CAPTURE_MODE_RELAXED
                             : capture->mode == CU_STREAM_CAPTURE_MODE_GLOBAL &&
                                   here.capture_mode == CU_STREAM_CAPTURE_MODE_GLOBAL;
    if (forbids) result = invalidate(*capture, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  }
  return result;
}

CUresult Captures::check(CaptureRule rule, Stream& stream) {
  if (rule.asks || active_.empty()) return CUDA_SUCCESS;
  if (stream.capture != nullptr) {
    if (stream.capture->invalidated) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    if (rule.absent) return invalidate(*stream.capture, CUDA_ERROR_NOT_SUPPORTED);
    return rule.waits ? invalidate(*stream.capture, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED)
                      : CUDA_SUCCESS;
  }
  CUresult result = CUDA_SUCCESS;
  if (!stream.legacy) return result;
  for (const auto& capture : active_) {
    const bool ordered =
        std::any_of(capture->streams.begin(), capture->streams.end(), [&](const Stream* capturing) {
          return capturing->blocking && capturing->device == stream.device;
        });
    if (ordered) result = invalidate(*capture, CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
  }
  return result;
}

CUresult Captures::check(const Event& event) {
  if (event.capture == nullptr) return check(CaptureRule{.by_mode = true});
  return invalidate(*event.capture, CUDA_ERROR_CAPTURED_EVENT);
}

CUresult Captures::check_device(int device) {
  CUresult result = CUDA_SUCCESS;
  for (const auto& capture : active_) {
    const bool there = std::any_of(capture->streams.begin(),
                                   capture->streams.end(),
                                   [&](const Stream* stream) { return stream->device == device; });
    if (there) result = invalidate(*capture, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  }
  return result;
}

}  // namespace spillway::emulator
