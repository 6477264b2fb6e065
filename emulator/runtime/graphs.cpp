// SPDX-License-Identifier: Apache-2.0
#include "emulator/driver/functions.h"
#include "emulator/runtime/call.h"

namespace driver = spillway::emulator::driver;
using spillway::emulator::runtime::enter;
using spillway::emulator::runtime::enter_on_device;

// The runtime's enumerations and structures have the driver's numbers and layout.
extern "C" {

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode mode) {
  return enter_on_device<"cudaStreamBeginCapture">(
      [&] { return driver::StreamBeginCapture(stream, static_cast<CUstreamCaptureMode>(mode)); });
}

cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  return enter_on_device<"cudaStreamEndCapture">(
      [&] { return driver::StreamEndCapture(stream, graph); });
}

cudaError_t cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus* status) {
  return enter_on_device<"cudaStreamIsCapturing">([&] {
    return driver::StreamIsCapturing(stream, reinterpret_cast<CUstreamCaptureStatus*>(status));
  });
}

cudaError_t cudaStreamGetCaptureInfo(cudaStream_t stream,
                                     cudaStreamCaptureStatus* status,
                                     unsigned long long* id,
                                     cudaGraph_t* graph,
                                     const cudaGraphNode_t** dependencies,
                                     const cudaGraphEdgeData** edges,
                                     size_t* count) {
  return enter_on_device<"cudaStreamGetCaptureInfo">([&] {
    cuuint64_t number = 0;
    const CUresult result =
        driver::StreamGetCaptureInfo(stream,
                                     reinterpret_cast<CUstreamCaptureStatus*>(status),
                                     &number,
                                     graph,
                                     dependencies,
                                     reinterpret_cast<const CUgraphEdgeData**>(edges),
                                     count);
    if (id != nullptr && result == CUDA_SUCCESS) *id = number;
    return result;
  });
}

cudaError_t cudaStreamUpdateCaptureDependencies(cudaStream_t stream,
                                                cudaGraphNode_t* dependencies,
                                                const cudaGraphEdgeData* edges,
                                                size_t count,
                                                unsigned flags) {
  return enter_on_device<"cudaStreamUpdateCaptureDependencies">([&] {
    return driver::StreamUpdateCaptureDependencies(
        stream, dependencies, reinterpret_cast<const CUgraphEdgeData*>(edges), count, flags);
  });
}

cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode* mode) {
  return enter<"cudaThreadExchangeStreamCaptureMode">([&] {
    return driver::ThreadExchangeStreamCaptureMode(reinterpret_cast<CUstreamCaptureMode*>(mode));
  });
}

cudaError_t cudaGraphInstantiateWithFlags(cudaGraphExec_t* executable,
                                          cudaGraph_t graph,
                                          unsigned long long flags) {
  return enter_on_device<"cudaGraphInstantiateWithFlags">(
      [&] { return driver::GraphInstantiateWithFlags(executable, graph, flags); });
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t* executable,
                                 cudaGraph_t graph,
                                 unsigned long long flags) {
  return enter_on_device<"cudaGraphInstantiate">(
      [&] { return driver::GraphInstantiateWithFlags(executable, graph, flags); });
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t executable, cudaStream_t stream) {
  return enter_on_device<"cudaGraphLaunch">(
      [&] { return driver::GraphLaunch(executable, stream); });
}

cudaError_t cudaGraphUpload(cudaGraphExec_t executable, cudaStream_t stream) {
  return enter_on_device<"cudaGraphUpload">(
      [&] { return driver::GraphUpload(executable, stream); });
}

cudaError_t cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t* nodes, size_t* count) {
  return enter<"cudaGraphGetNodes">([&] { return driver::GraphGetNodes(graph, nodes, count); });
}

cudaError_t cudaGraphNodeGetDependencies(cudaGraphNode_t node,
                                         cudaGraphNode_t* dependencies,
                                         cudaGraphEdgeData* edges,
                                         size_t* count) {
  return enter<"cudaGraphNodeGetDependencies">([&] {
    return driver::GraphNodeGetDependencies(
        node, dependencies, reinterpret_cast<CUgraphEdgeData*>(edges), count);
  });
}

cudaError_t cudaGraphNodeGetType(cudaGraphNode_t node, cudaGraphNodeType* type) {
  return enter<"cudaGraphNodeGetType">(
      [&] { return driver::GraphNodeGetType(node, reinterpret_cast<CUgraphNodeType*>(type)); });
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  return enter<"cudaGraphDestroy">([&] { return driver::GraphDestroy(graph); });
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t executable) {
  return enter<"cudaGraphExecDestroy">([&] { return driver::GraphExecDestroy(executable); });
}

cudaError_t cudaGraphDebugDotPrint(cudaGraph_t graph, const char* path, unsigned flags) {
  return enter<"cudaGraphDebugDotPrint">(
      [&] { return driver::GraphDebugDotPrint(graph, path, flags); });
}
}
