// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "torch_glue/base/compat.h"

#include <ATen/core/Tensor.h>

#include <array>
#include <cstddef>
#include <optional>
#include <utility>

namespace spillway {

/// Data about the latest nodes, without references to them. Threads: confined.
template <typename Known, std::size_t kMax>
class Latest {
 public:
  void add(const compat::NodePtr& node, Known known) {
    last_[next_++ % kMax].emplace(Entry{compat::WeakNodePtr(node), node.get(), std::move(known)});
  }

  /// The entry of a node that `suits` accepts; null if there is none among the latest.
  template <typename Suits>
  [[nodiscard]] const Known* find(const torch::autograd::Node& node, Suits suits) const {
    for (const auto& entry : last_) {
      const bool its = entry && entry->address == &node && !entry->node.expired();
      if (its && suits(entry->known)) return &entry->known;
    }
    return nullptr;
  }

  [[nodiscard]] const Known* find(const torch::autograd::Node& node) const {
    return find(node, [](const Known&) { return true; });
  }

 private:
  struct Entry {
    compat::WeakNodePtr node;
    const torch::autograd::Node* address;
    Known known;
  };

  std::array<std::optional<Entry>, kMax> last_;
  std::size_t next_ = 0;
};

/// Adds what is known about the node of `result`, unless there is something: within autocast an
/// operator is called again with cast arguments, and its node was created for those.
template <typename Known, std::size_t kMax>
void add_first(Latest<Known, kMax>& those, const at::Tensor& result, Known known) {
  const auto& node = result.grad_fn();
  if (node == nullptr || those.find(*node) != nullptr) return;
  those.add(node, std::move(known));
}

}  // namespace spillway
