// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "torch_glue/saved_tensors/operator_notes.h"
#include "torch_glue/saved_tensors/recipe.h"

#include <cstdint>
#include <functional>
#include <memory>
#include <typeindex>
#include <unordered_map>

namespace spillway {

/// Writes the recipe of one output of one type of node. Does not throw.
using Rule = std::function<void(const torch::autograd::Node& node, Recipe& recipe)>;

/// The rules for recomputation, by the type of autograd node. A tensor without a rule is kept. Each
/// family of operators adds its rules (add_*). Each rule has a bitwise test in
/// tests/torch_glue/cases/recompute_rules.py.
///
/// An operator may have a rule if running it again gives the same bits on the same machine and has
/// no other effect. An operator is expensive if it costs more than reading and writing its tensors.
/// Threads: written once, before the first look-up.
class Rules {
 public:
  static const Rules& instance();

  /// `write`: void(const Node&, Recipe&), for the first output; the other outputs are not
  /// recomputed.
  template <typename Node, typename Write>
  void add(Write write) {
    rules_[std::type_index(typeid(Node))].write = [write](const torch::autograd::Node& node,
                                                          Recipe& recipe) {
      write(static_cast<const Node&>(node), recipe);
    };
  }

  /// As add(), for tensors that are recomputed only if a plan, which knows the cost, requests it.
  template <typename Node, typename Write>
  void add_expensive(Write write) {
    add<Node>(write);
    rules_[std::type_index(typeid(Node))].expensive = true;
  }

  /// As add(), for nodes that save that output themselves. The rule is queried while the node saves
  /// it; later queries use that result.
  template <typename Node, typename Write>
  void add_saved(torch::autograd::SavedVariable Node::*saved, Write write) {
    add<Node>([saved, write](const Node& node, Recipe& recipe) {
      // Its tensor is kept, or recomputed by the entry of its storage.
      if (!compat::never_saved(node.*saved)) return recipe.reject();
      write(node, recipe);
    });
    rules_[std::type_index(typeid(Node))].saved = [saved](const torch::autograd::Node& node) {
      return &(static_cast<const Node&>(node).*saved);
    };
  }

  struct Known {
    Rule write;
    bool expensive = false;
    /// Null unless the node saves that output itself.
    std::function<const torch::autograd::SavedVariable*(const torch::autograd::Node&)> saved;
  };

  /// Null if there is none.
  [[nodiscard]] const Known* find(const torch::autograd::Node& node, std::uint32_t output) const;

  /// That output as saved by its own node; null if the node saves none.
  [[nodiscard]] const torch::autograd::SavedVariable* saved_result(
      const torch::autograd::Node& node, std::uint32_t output) const;

 private:
  Rules();

  std::unordered_map<std::type_index, Known> rules_;
};

/// The note of the operator whose tensor this is; null if there is none.
std::shared_ptr<const OperatorNote> note_of(const torch::autograd::SavedVariable& saved);

/// Of the mask of the dropout that this thread runs; null for any other tensor.
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
