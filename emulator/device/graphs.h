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
  bool capturing = true;  // a capture still adds to it
};

/// What can be launched, again and again. It keeps the nodes that its graph had.
struct Executable {
  GraphNodes nodes;
  int device;
  Event last;  // the last launch: the next one comes after it, on whatever stream
};

/// The nodes in an order that respects what comes after what: `choose(count)` picks the next of
/// `count` nodes that nothing holds back.
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

/// Reports nodes that touch the same bytes, one writing, although none comes after the other. A
/// chain of nodes is called by `chain` and a number: "branch of a graph 2".
void check_order_within(const GraphNodes& nodes, const char* chain, OrderChecker& reports);

/// A graph in the DOT language.
std::string as_dot(const GraphNodes& nodes);

/// Every graph, node and executable that the program has a handle of.
/// Threads: under the machine's lock. Ownership: owns them; executables are shared with launches.
class Graphs {
 public:
  Graph* create();
  /// Appends a node behind `after`.
  GraphNode* add(Graph& graph, Operation operation, std::vector<GraphNode*> after);
  std::shared_ptr<Executable> instantiate(const Graph& graph, int device);

  /// Null for what is no living handle.
  Graph* find(CUgraph handle);
  GraphNode* find(CUgraphNode handle);
  std::shared_ptr<Executable> find(CUgraphExec handle);

  /// False for what is no living handle, and for the graph of a capture that goes on.
  bool destroy(CUgraph handle);
  bool destroy(CUgraphExec handle);

 private:
  std::unordered_map<CUgraph, std::unique_ptr<Graph>> graphs_;
  std::unordered_map<CUgraphExec, std::shared_ptr<Executable>> executables_;
  std::unordered_set<CUgraphNode> nodes_;
};

}  // namespace spillway::emulator
