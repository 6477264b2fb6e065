// SPDX-License-Identifier: Apache-2.0
#include "emulator/device/graphs.h"

#include "allocator/base/file.h"
#include "emulator/device/machine.h"
#include "emulator/driver/functions.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <string>

namespace spillway::emulator::driver {
namespace {

template <Literal kName, typename Body>
CUresult call_on_graph(CUgraph handle, Body&& body) {
  return call<kName>([&](Machine& machine) {
    Graph* graph = machine.graphs.find(handle);
    if (graph == nullptr) return CUDA_ERROR_INVALID_VALUE;
    return static_cast<CUresult>(body(machine, *graph));
  });
}

/// CUDA's convention for lists: the length if `out` is null. Otherwise at most *count entries, the
/// rest of `out` null, and the number of entries.
template <typename Source>
CUresult give(CUgraphNode* out, std::size_t* count, const Source& nodes, CUgraphEdgeData* edges) {
  if (count == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (out == nullptr) {
    *count = nodes.size();
    return CUDA_SUCCESS;
  }
  const std::size_t room = *count;
  *count = std::min(room, nodes.size());
  for (std::size_t i = 0; i < room; ++i) {
    out[i] = i < nodes.size() ? reinterpret_cast<CUgraphNode>(&*nodes[i]) : nullptr;
    if (edges != nullptr) edges[i] = {};
  }
  return CUDA_SUCCESS;
}

}  // namespace

CUresult GraphInstantiateWithFlags(CUgraphExec* executable,
                                   CUgraph handle,
                                   unsigned long long flags) {
  return call_on_graph<"cuGraphInstantiateWithFlags">(handle, [&](Machine& machine, Graph& graph) {
    constexpr unsigned long long kAllowed = CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH |
                                            CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD |
                                            CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY;
    if (executable == nullptr) return CUDA_ERROR_INVALID_VALUE;
    if ((flags & CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH) != 0) {
      return refuse("a graph that the device launches");
    }
    if ((flags & ~kAllowed) != 0) return CUDA_ERROR_INVALID_VALUE;
    if (graph.capturing) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    if (machine.settings.check)
      check_order_within(graph.nodes, "branch of a graph", machine.checker);
    const int device = std::max(thread_state().device, 0);
    *executable = reinterpret_cast<CUgraphExec>(machine.graphs.instantiate(graph, device).get());
    return CUDA_SUCCESS;
  });
}

CUresult GraphLaunch(CUgraphExec handle, CUstream stream) {
  return call_on_stream<"cuGraphLaunch">(stream, [&](Machine& machine, Stream& on) {
    const auto executable = machine.graphs.find(handle);
    if (executable == nullptr) return CUDA_ERROR_INVALID_VALUE;
    machine.streams.launch(on, executable);
    return machine.sticky.load();
  });
}

CUresult GraphUpload(CUgraphExec handle, CUstream stream) {
  return call_on_stream<"cuGraphUpload">(stream, [&](Machine& machine, const Stream& /*on*/) {
    return machine.graphs.find(handle) == nullptr ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
  });
}

CUresult GraphGetNodes(CUgraph handle, CUgraphNode* nodes, std::size_t* count) {
  return call_on_graph<"cuGraphGetNodes">(handle, [&](Machine& /*machine*/, const Graph& graph) {
    return give(nodes, count, graph.nodes, nullptr);
  });
}

CUresult GraphNodeGetDependencies(CUgraphNode handle,
                                  CUgraphNode* dependencies,
                                  CUgraphEdgeData* edges,
                                  std::size_t* count) {
  return call<"cuGraphNodeGetDependencies">([&](Machine& machine) {
    const GraphNode* node = machine.graphs.find(handle);
    if (node == nullptr) return CUDA_ERROR_INVALID_VALUE;
    return give(dependencies, count, node->after, edges);
  });
}

CUresult GraphNodeGetType(CUgraphNode handle, CUgraphNodeType* type) {
  return call<"cuGraphNodeGetType">([&](Machine& machine) {
    const GraphNode* node = machine.graphs.find(handle);
    if (node == nullptr || type == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *type = node->operation.kind;
    return CUDA_SUCCESS;
  });
}

CUresult GraphDestroy(CUgraph handle) {
  return call<"cuGraphDestroy">([&](Machine& machine) {
    return machine.graphs.destroy(handle) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
  });
}

CUresult GraphExecDestroy(CUgraphExec handle) {
  return call<"cuGraphExecDestroy">([&](Machine& machine) {
    return machine.graphs.destroy(handle) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
  });
}

CUresult GraphDebugDotPrint(CUgraph handle, const char* path, unsigned /*flags*/) {
  return call_on_graph<"cuGraphDebugDotPrint">(
      handle, [&](Machine& /*machine*/, const Graph& graph) {
        if (path == nullptr) return CUDA_ERROR_INVALID_VALUE;
        const File file(::open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666));
        const std::string text = as_dot(graph.nodes);
        const bool written =
            ::write(file.number(), text.data(), text.size()) == static_cast<ssize_t>(text.size());
        return written ? CUDA_SUCCESS : CUDA_ERROR_OPERATING_SYSTEM;
      });
}

}  // namespace spillway::emulator::driver
