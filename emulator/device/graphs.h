// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "emulator/device/stream.h"

#include <memory>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

namespace spillway::emulator {

/// One operation of a graph.
struct GraphNode {
  std::size_t index;  // in its graph
  Operation operation;
  std::vector<GraphNode*> after;  // of the same graph, with lower indices
  CUevent event = nullptr;        // of event records and event waits
};

using GraphNodes = std::vector<std::shared_ptr<GraphNode>>;

/// Ownership: its nodes, together with every executable made from it.
struct Graph {
  GraphNodes nodes;
  bool capturing = true;  // a capture is still adding to it
};

/// A graph that can be launched repeatedly. It keeps the nodes of its graph.
struct Executable {
  GraphNodes nodes;
  int device;
  Event last;  // the last launch; the next one is ordered after it, on any stream
};

/// The nodes in a topological order: `choose(count)` selects the next of `count` ready nodes.
template <typename Choose>
std::vector<const GraphNode*> in_order(const GraphNodes& nodes, Choose&& choose) {
  std::vector<std::size_t> missing(nodes.size());
  std::vector<std::vector<const GraphNode*>> behind(nodes.size());
  std::vector<const GraphNode*> ready;
  for (const auto& node : nodes) {
    missing[node->index] = node->after.size();
    for (const GraphNode* before : node->after)
      behind[before->index].push_back(node.get());
    if (node->after.empty()) ready.push_back(node.get());
  }
  std::vector<const GraphNode*> order;
  while (!ready.empty()) {
    const auto chosen = ready.begin() + static_cast<std::ptrdiff_t>(choose(ready.size()));
    const GraphNode* node = *chosen;
    *chosen = ready.back();
    ready.pop_back();
    order.push_back(node);
    for (const GraphNode* next : behind[node->index]) {
      if (--missing[next->index] == 0) ready.push_back(next);
    }
  }
  return order;
}

/// Reports nodes that access the same bytes, one writing, without an order between them. The text
/// of the race names a chain of nodes by `chain` and a number: "branch of a graph 2".
void check_order_within(const GraphNodes& nodes, const char* chain, OrderChecker& races);

/// A graph in the DOT language.
std::string as_dot(const GraphNodes& nodes);

/// All graphs, nodes and executables with a handle in the program.
/// Threads: under the machine's lock.
/// Ownership: owns them; launches share executables.
class Graphs {
 public:
  Graph* create();
  /// Appends a node after the nodes `after`.
  GraphNode* add(Graph& graph, Operation operation, std::vector<GraphNode*> after);
  std::shared_ptr<Executable> instantiate(const Graph& graph, int device);

  /// Null for an invalid handle.
  Graph* find(CUgraph handle);
  GraphNode* find(CUgraphNode handle);
  std::shared_ptr<Executable> find(CUgraphExec handle);

  /// False for an invalid handle, and for the graph of a capture in progress.
  bool destroy(CUgraph handle);
  bool destroy(CUgraphExec handle);

 private:
  std::unordered_map<CUgraph, std::unique_ptr<Graph>> graphs_;
  std::unordered_map<CUgraphExec, std::shared_ptr<Executable>> executables_;
  std::unordered_set<CUgraphNode> nodes_;
};

}  // namespace spillway::emulator
