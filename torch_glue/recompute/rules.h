// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "torch_glue/recompute/operator_notes.h"
#include "torch_glue/recompute/recipe.h"

#include <cstdint>
#include <functional>
#include <memory>
#include <typeindex>
#include <unordered_map>

namespace spillway {

/// Writes the recipe of one output of one kind of node. Never throws.
using Rule = std::function<void(const torch::autograd::Node& node, Recipe& recipe)>;

/// Which tensors can be recomputed, and how: by the kind of the node that autograd made for the
/// operator. What has no rule is kept. Each family of operators adds its own (add_*), and each rule
/// has its test of bits in tests/torch_glue/cases/recompute_rules.py.
///
/// An operator may be here where running it again gives the same bits on the same machine, and
/// touches nothing else. One that costs more than reading and writing its tensors is expensive.
/// Threads: written once, before the first look.
class Rules {
 public:
  static const Rules& instance();

  /// `write`: void(const Node&, Recipe&), for the first output; the others are not recomputed.
  template <typename Node, typename Write>
  void add(Write write) {
    rules_[std::type_index(typeid(Node))].write = [write](const torch::autograd::Node& node,
                                                          Recipe& recipe) {
      write(static_cast<const Node&>(node), recipe);
    };
  }

  /// As add(), for what is recomputed only where a plan, which knows what that costs, asks for
  /// it.
  template <typename Node, typename Write>
  void add_expensive(Write write) {
    add<Node>(write);
    rules_[std::type_index(typeid(Node))].expensive = true;
  }

  /// As add(), for nodes that save that output themselves: the rule is asked for while the node
  /// saves it, and afterwards whatever has become of it is used.
  template <typename Node, typename Write>
  void add_saved(torch::autograd::SavedVariable Node::*saved, Write write) {
    add<Node>([saved, write](const Node& node, Recipe& recipe) {
      // Its tensor is kept, or recomputed by those who know its storage.
      if (!compat::never_saved(node.*saved)) return recipe.impossible();
      write(node, recipe);
    });
    rules_[std::type_index(typeid(Node))].saved = [saved](const torch::autograd::Node& node) {
      return &(static_cast<const Node&>(node).*saved);
    };
  }

  /// Null where there is none; a expensive one only where `expensive`.
  [[nodiscard]] const Rule* find(const torch::autograd::Node& node,
                                 std::uint32_t output,
                                 bool expensive) const;

  [[nodiscard]] bool is_expensive(const torch::autograd::Node& node, std::uint32_t output) const;

  /// That output as its own node has saved it; null where it saves none.
  [[nodiscard]] const torch::autograd::SavedVariable* saved_result(
      const torch::autograd::Node& node, std::uint32_t output) const;

 private:
  struct Known {
    Rule write;
    bool expensive = false;
    std::function<const torch::autograd::SavedVariable*(const torch::autograd::Node&)> saved;
  };

  Rules();

  [[nodiscard]] const Known* known(const torch::autograd::Node& node, std::uint32_t output) const;

  std::unordered_map<std::type_index, Known> rules_;
};

/// What the node noted of the operator whose tensor this is; null where it was none.
std::shared_ptr<const OperatorNote> note_of(const torch::autograd::SavedVariable& saved);

/// Of the mask of the dropout that this thread runs; null where the tensor is none.
std::unique_ptr<Recipe> recipe_of_mask(const at::Tensor& mask);

void add_activations(Rules& rules);
void add_arithmetic(Rules& rules);
void add_casts(Rules& rules);
void add_dropout(Rules& rules);
void add_normalizations(Rules& rules);
void add_poolings(Rules& rules);
void add_products(Rules& rules);
void add_views(Rules& rules);

}  // namespace spillway
