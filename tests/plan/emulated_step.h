// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "allocator/lifetime/allocation_curve.h"
#include "allocator/plan/step_profile.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <utility>
#include <vector>

namespace spillway::test_steps {

/// A graph whose node k makes storage k and saves what it makes it from; backward passes go through
/// all of its nodes, the last one first. Each storage has 100 bytes.
struct EmulatedGraph {
  std::vector<std::vector<std::size_t>> operands;
  std::vector<bool> recomputable;
  std::vector<std::uint64_t> working;  // bytes that computing it again needs for a while
  int passes = 1;

  static EmulatedGraph random(std::mt19937_64& random, bool with_working) {
    EmulatedGraph graph;
    const std::size_t nodes = 4 + random() % 8;
    graph.operands.resize(nodes);
    for (std::size_t node = 0; node < nodes; ++node) {
      auto& operands = graph.operands[node];
      for (std::uint64_t each = 0; node > 0 && each < 1 + random() % 2; ++each) {
        const std::size_t operand = random() % 2 == 0 ? node - 1 : random() % node;
        if (std::find(operands.begin(), operands.end(), operand) == operands.end())
          operands.push_back(operand);
      }
      graph.recomputable.push_back(node > 0 && random() % 2 == 0);
      graph.working.push_back(with_working && random() % 2 == 0 ? 150 : 0);
    }
    graph.passes = 1 + static_cast<int>(random() % 2);
    return graph;
  }
};

/// What SavedStorage and RecomputedStorage hold in a step through the graph: what is fetched stays
/// until each hook that was there then has asked once or ended.
class EmulatedStep {
 public:
  static constexpr std::uint64_t kBytes = 100;

  EmulatedStep(const EmulatedGraph& graph, std::vector<Action> actions)
      : graph_(graph), actions_(std::move(actions)), storages_(graph.operands.size()) {
    curve_.begin(1, Bytes{1000});
    forward();
    for (int pass = 1; pass <= graph.passes; ++pass)
      backward(pass == graph.passes);
    recorded_ = curve_.end();
  }

  ~EmulatedStep() = default;
  EmulatedStep(const EmulatedStep&) = delete;
  EmulatedStep& operator=(const EmulatedStep&) = delete;

  [[nodiscard]] const StepCurve& curve() const { return recorded_; }

  /// The nodes of its storages, in the order in which they were saved.
  [[nodiscard]] const std::vector<std::size_t>& saved() const { return saved_; }

 private:
  struct Block {
    Block(AllocationCurve& in, std::uint64_t at, std::uint64_t size)
        : curve(in), address(at), bytes(size) {
      curve.born(Bytes{bytes});
    }

    ~Block() { curve.died(address, Bytes{bytes}); }

    Block(const Block&) = delete;
    Block& operator=(const Block&) = delete;

    AllocationCurve& curve;
    const std::uint64_t address;
    const std::uint64_t bytes;
  };

  using Memory = std::shared_ptr<Block>;
  using Hook = std::pair<std::size_t, std::size_t>;  // a node's, of an operand

  struct Storage {
    std::optional<std::size_t> index{};  // once saved
    Memory program{};
    Memory kept{};
    Memory fetched{};
    std::weak_ptr<Block> original{};
    std::weak_ptr<Block> arrived{};
    int round = 0;
    int hooks = 0;
    int waiting = 0;
  };

  [[nodiscard]] Action action(const Storage& storage) const {
    return *storage.index < actions_.size() ? actions_[*storage.index] : Action::kOffload;
  }

  Memory make(std::uint64_t bytes) { return std::make_shared<Block>(curve_, ++address_, bytes); }

  void forward() {
    const std::size_t nodes = storages_.size();
    std::vector<std::size_t> last(nodes);
    for (std::size_t node = 0; node < nodes; ++node) {
      last[node] = node;
      for (const std::size_t operand : graph_.operands[node])
        last[operand] = node;
    }
    for (std::size_t node = 0; node < nodes; ++node) {
      storages_[node].program = make(kBytes);
      for (const std::size_t operand : graph_.operands[node])
        save(operand, saved_by_[{node, operand}]);
      for (std::size_t each = 0; each <= node; ++each)
        if (last[each] == node) storages_[each].program.reset();
    }
  }

  void save(std::size_t node, int& round) {
    Storage& storage = storages_[node];
    ++storage.hooks;
    round = storage.round;
    if (storage.index) return;
    storage.index = saved_.size();
    saved_.push_back(node);
    if (action(storage) == Action::kKeep) {
      storage.kept = storage.program;
      return;
    }
    storage.original = storage.program;
    curve_.watch(1, storage.program->address, *storage.index, Bytes{kBytes});
    if (action(storage) != Action::kRecompute) return;
    for (const std::size_t operand : graph_.operands[node]) {
      ++storages_[operand].hooks;
      recipes_[{node, operand}] = storages_[operand].round;
    }
  }

  void backward(bool last) {
    for (std::size_t node = storages_.size(); node-- > 0;) {
      std::vector<Memory> unpacked;
      for (const std::size_t operand : graph_.operands[node])
        unpacked.push_back(get(operand, saved_by_[{node, operand}]));
      unpacked.clear();
      if (!last) continue;
      for (const std::size_t operand : graph_.operands[node])
        end(operand, saved_by_[{node, operand}]);
    }
  }

  // Operands come before what is made from them.
  // NOLINTNEXTLINE(misc-no-recursion)
  Memory get(std::size_t node, int& round) {
    Storage& storage = storages_[node];
    if (action(storage) == Action::kKeep) return storage.kept;
    if (Memory alive = storage.original.lock()) return alive;
    const bool again = action(storage) == Action::kRecompute;
    Memory memory = again ? storage.fetched : storage.arrived.lock();
    if (memory == nullptr) {
      const std::size_t since = curve_.event();
      memory = again ? compute(node) : make(kBytes);
      curve_.present(1, *storage.index);
      if (again) curve_.computed(1, *storage.index, since);
      curve_.watch(1, memory->address, *storage.index, Bytes{kBytes});
      storage.arrived = storage.fetched = memory;
      storage.waiting = storage.hooks;
      ++storage.round;
    }
    curve_.asked(1, *storage.index, product_);
    if (std::exchange(round, storage.round) != storage.round) release_waiter(storage);
    return memory;
  }

  // NOLINTNEXTLINE(misc-no-recursion)
  Memory compute(std::size_t node) {
    const std::size_t before = std::exchange(product_, *storages_[node].index);
    std::vector<Memory> operands;
    for (const std::size_t operand : graph_.operands[node])
      operands.push_back(get(operand, recipes_[{node, operand}]));
    if (graph_.working[node] > 0) make(graph_.working[node]);
    Memory made = make(kBytes);
    product_ = before;
    return made;
  }

  static void release_waiter(Storage& storage) {
    if (--storage.waiting <= 0) storage.fetched.reset();
  }

  // NOLINTNEXTLINE(misc-no-recursion)
  void end(std::size_t node, int round) {
    Storage& storage = storages_[node];
    --storage.hooks;
    if (round != storage.round) release_waiter(storage);
    if (storage.hooks > 0) return;
    if (action(storage) != Action::kKeep) curve_.present(1, *storage.index);
    storage.fetched.reset();
    storage.kept.reset();
    if (action(storage) != Action::kRecompute) return;
    for (const std::size_t operand : graph_.operands[node])
      end(operand, recipes_[{node, operand}]);
  }

  const EmulatedGraph& graph_;
  const std::vector<Action> actions_;  // by storage as saved; further storages are offloaded
  AllocationCurve curve_;
  std::vector<Storage> storages_;
  std::map<Hook, int> saved_by_;  // their rounds
  std::map<Hook, int> recipes_;   // those that compute the node's storage again
  std::vector<std::size_t> saved_;
  std::size_t product_ = StepCurve::Ask::kNoProduct;
  std::uint64_t address_ = 0;
  StepCurve recorded_;
};

}  // namespace spillway::test_steps
