// SPDX-License-Identifier: Apache-2.0
#include "emulator/device/graphs.h"

#include <algorithm>
#include <utility>

namespace spillway::emulator {
namespace {

/// A chain of nodes, each after the previous one: an actor with a sequential order.
struct Branch {
  Actor actor;
  std::uint64_t nodes;
  const GraphNode* last;
};

}  // namespace

void check_order_within(const GraphNodes& nodes, const char* chain, OrderChecker& races) {
  OrderChecker checker(false);
  std::vector<Branch> branches;
  std::vector<VectorClock> clocks(nodes.size());
  for (const auto& node : nodes) {
    VectorClock& clock = clocks[node->index];
    for (const GraphNode* before : node->after)
      clock.join(clocks[before->index]);
    auto mine = std::find_if(branches.begin(), branches.end(), [&](const Branch& branch) {
      return std::find(node->after.begin(), node->after.end(), branch.last) != node->after.end();
    });
    if (mine == branches.end()) {
      const Actor actor = branches.size();
      std::string name = chain;
      name += ' ';
      name += std::to_string(actor + 1);
      checker.name_actor(actor, std::move(name));
      branches.push_back({actor, 0, nullptr});
      mine = branches.end() - 1;
    }
    mine->last = node.get();
    clock.learn(mine->actor, ++mine->nodes);
    for (const Access& access : node->operation.accesses)
      checker.access(mine->actor, clock, access.bytes, access.write, {access.operation});
  }
  races.take_races(checker);
}

std::string as_dot(const GraphNodes& nodes) {
  std::string text = "digraph {\n";
  for (const auto& node : nodes) {
    const std::string name = "node_" + std::to_string(node->index);
    text += "  " + name + " [label=\"" + std::to_string(node->index) + " " + node->operation.name +
            "\"];\n";
    for (const GraphNode* before : node->after)
      text += "  node_" + std::to_string(before->index) + " -> " + name + ";\n";
  }
  return text + "}\n";
}

Graph* Graphs::create() {
  auto made = std::make_unique<Graph>();
  Graph* graph = made.get();
  graphs_.emplace(reinterpret_cast<CUgraph>(graph), std::move(made));
  return graph;
}

GraphNode* Graphs::add(Graph& graph, Operation operation, std::vector<GraphNode*> after) {
  graph.nodes.push_back(std::make_shared<GraphNode>(
      GraphNode{graph.nodes.size(), std::move(operation), std::move(after)}));
  GraphNode* node = graph.nodes.back().get();
  nodes_.insert(reinterpret_cast<CUgraphNode>(node));
  return node;
}

std::shared_ptr<Executable> Graphs::instantiate(const Graph& graph, int device) {
  auto made = std::make_shared<Executable>(Executable{graph.nodes, device, Event{device, false}});
  executables_.emplace(reinterpret_cast<CUgraphExec>(made.get()), made);
  return made;
}

Graph* Graphs::find(CUgraph handle) {
  const auto found = graphs_.find(handle);
  return found == graphs_.end() ? nullptr : found->second.get();
}

GraphNode* Graphs::find(CUgraphNode handle) {
  return nodes_.contains(handle) ? reinterpret_cast<GraphNode*>(handle) : nullptr;
}

std::shared_ptr<Executable> Graphs::find(CUgraphExec handle) {
  const auto found = executables_.find(handle);
  return found == executables_.end() ? nullptr : found->second;
}

bool Graphs::destroy(CUgraph handle) {
  const auto found = graphs_.find(handle);
  if (found == graphs_.end() || found->second->capturing) return false;
  for (const auto& node : found->second->nodes)
    nodes_.erase(reinterpret_cast<CUgraphNode>(node.get()));
  graphs_.erase(found);
  return true;
}

bool Graphs::destroy(CUgraphExec handle) {
  return executables_.erase(handle) != 0;
}

}  // namespace spillway::emulator
