// SPDX-License-Identifier: Apache-2.0
#include "emulator/device/captures.h"

#include "emulator/device/machine.h"
#include "emulator/driver/functions.h"

#include <algorithm>
#include <utility>

namespace spillway::emulator::driver {
namespace {

bool known_mode(CUstreamCaptureMode mode) {
  return mode == CU_STREAM_CAPTURE_MODE_GLOBAL || mode == CU_STREAM_CAPTURE_MODE_THREAD_LOCAL ||
         mode == CU_STREAM_CAPTURE_MODE_RELAXED;
}

CUstreamCaptureStatus status_of(const Stream& stream) {
  if (stream.capture == nullptr) return CU_STREAM_CAPTURE_STATUS_NONE;
  return stream.capture->invalidated ? CU_STREAM_CAPTURE_STATUS_INVALIDATED
                                     : CU_STREAM_CAPTURE_STATUS_ACTIVE;
}

template <typename Value>
void give(Value* out, Value value) {
  if (out != nullptr) *out = value;
}

}  // namespace

CUresult StreamBeginCapture(CUstream handle, CUstreamCaptureMode mode) {
  return call_on_stream<"cuStreamBeginCapture">(handle, [&](Machine& machine, Stream& stream) {
    if (!known_mode(mode)) return CUDA_ERROR_INVALID_VALUE;
    return machine.captures.begin(stream, mode);
  });
}

CUresult StreamEndCapture(CUstream handle, CUgraph* graph) {
  return call_on_stream<"cuStreamEndCapture">(handle, [&](Machine& machine, Stream& stream) {
    if (graph == nullptr) return CUDA_ERROR_INVALID_VALUE;
    Graph* made = nullptr;
    const CUresult result = machine.captures.end(stream, &made);
    *graph = reinterpret_cast<CUgraph>(made);
    return result;
  });
}

CUresult StreamIsCapturing(CUstream handle, CUstreamCaptureStatus* status) {
  return call_on_stream<"cuStreamIsCapturing">(handle,
                                               [&](Machine& /*machine*/, const Stream& stream) {
                                                 if (status == nullptr)
                                                   return CUDA_ERROR_INVALID_VALUE;
                                                 *status = status_of(stream);
                                                 return CUDA_SUCCESS;
                                               });
}

CUresult StreamGetCaptureInfo(CUstream handle,
                              CUstreamCaptureStatus* status,
                              cuuint64_t* id,
                              CUgraph* graph,
                              const CUgraphNode** dependencies,
                              const CUgraphEdgeData** edges,
                              std::size_t* count) {
  return call_on_stream<"cuStreamGetCaptureInfo">(
      handle, [&](Machine& /*machine*/, const Stream& stream) {
        if (status == nullptr) return CUDA_ERROR_INVALID_VALUE;
        *status = status_of(stream);
        const Capture* capture = stream.capture.get();
        give(id, cuuint64_t{capture == nullptr ? 0 : capture->id});
        give(graph, reinterpret_cast<CUgraph>(capture == nullptr ? nullptr : capture->graph));
        give(dependencies, reinterpret_cast<const CUgraphNode*>(stream.tail.data()));
        give(edges, static_cast<const CUgraphEdgeData*>(nullptr));  // all are plain dependencies
        give(count, stream.tail.size());
        return CUDA_SUCCESS;
      });
}

CUresult ThreadExchangeStreamCaptureMode(CUstreamCaptureMode* mode) {
  return call<"cuThreadExchangeStreamCaptureMode">([&](Machine& /*machine*/) {
    if (mode == nullptr || !known_mode(*mode)) return CUDA_ERROR_INVALID_VALUE;
    std::swap(*mode, thread_state().capture_mode);
    return CUDA_SUCCESS;
  });
}

CUresult StreamUpdateCaptureDependencies(CUstream handle,
                                         CUgraphNode* dependencies,
                                         const CUgraphEdgeData* edges,
                                         std::size_t count,
                                         unsigned flags) {
  return call_on_stream<"cuStreamUpdateCaptureDependencies">(
      handle, [&](Machine& machine, Stream& stream) {
        if (stream.capture == nullptr) return CUDA_ERROR_ILLEGAL_STATE;
        if (edges != nullptr) return refuse("an edge of a graph with data");
        if (flags > CU_STREAM_SET_CAPTURE_DEPENDENCIES || (count != 0 && dependencies == nullptr)) {
          return CUDA_ERROR_INVALID_VALUE;
        }
        std::vector<GraphNode*> tail;
        if (flags == CU_STREAM_ADD_CAPTURE_DEPENDENCIES) tail = stream.tail;
        const GraphNodes& nodes = stream.capture->graph->nodes;
        for (std::size_t i = 0; i < count; ++i) {
          GraphNode* node = machine.graphs.find(dependencies[i]);
          if (node == nullptr || nodes.size() <= node->index || nodes[node->index].get() != node) {
            return CUDA_ERROR_INVALID_VALUE;
          }
          if (std::find(tail.begin(), tail.end(), node) == tail.end()) tail.push_back(node);
        }
        stream.tail = std::move(tail);
        return CUDA_SUCCESS;
      });
}

}  // namespace spillway::emulator::driver
