// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "allocator/base/pooled.h"
#include "torch_glue/compat.h"

#include <ATen/core/Tensor.h>
#include <c10/util/SmallVector.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/saved_variable.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <typeinfo>

namespace spillway {

class PackHook;
struct OperandVersions;
struct RegionOptions;

/// How one tensor is recomputed, bit for bit, by the operator that made it, from what the graph
/// keeps anyway. It owns handles of what it needs, and no node: a producer may release its tensors
/// before the recipe is used, and nothing is lost.
///
/// Threads: written on one; run() on any.
class Recipe : public Pooled<Recipe> {
 public:
  using Values = at::ArrayRef<at::Tensor>;
  using Function = std::function<at::Tensor(Values)>;
  using Handle = std::shared_ptr<PackHook>;

  /// This many tensors at most that are recomputed, each from the one before it: what is
  /// computed on the way takes memory until its own turn comes.
  static constexpr int kLongestChain = 3;
  /// The same under a budget, whose plan knows the memory. What can be recomputed must hardly
  /// depend on what the plan keeps.
  static constexpr int kLongestPlanned = 6;
  /// Of what is expensive. So a stack of layers without residuals has something to begin again
  /// from.
  static constexpr int kLongestBeforeExpensive = 2;
  /// This many operators at most whose results nothing saves, one behind the other.
  static constexpr int kDeepest = 4;

  /// The recipe of what `node` gave as its output `output`; none where there is no rule for that,
  /// or something that it takes cannot be had. `region` is the one that saves it; `expensive`:
  /// whether expensive rules count where it has a budget. Requires: the forward pass of the node is
  /// over.
  static std::unique_ptr<Recipe> of(const torch::autograd::Node& node,
                                    std::uint32_t output,
                                    const RegionOptions& region,
                                    int depth = 0,
                                    bool expensive = true);

  /// Of what needs no value.
  static std::unique_ptr<Recipe> of_nothing(Function function);

  /// The rules write the values in the order in which the Function takes them. One that cannot be
  /// had makes the recipe impossible.
  void needs(const torch::autograd::SavedVariable& saved);
  /// One of the two tensors that the node's operator was given: as needs(saved), or as
  /// needs_result() of this edge where the node has no use for it and so saved nothing.
  void needs_operand(const torch::autograd::Node& node,
                     const torch::autograd::SavedVariable& saved,
                     std::uint32_t edge,
                     std::uint32_t OperandVersions::*version);
  /// The result of the node behind the edge, which nothing need have saved. `version` is that of
  /// the tensor when it was used: a change in place that no graph has seen must not be missed.
  void needs_result(const torch::autograd::Edge& edge, std::uint32_t version);
  /// A tensor that is kept anyway, at its version `version`: a parameter.
  void needs_kept(const at::Tensor& tensor, std::uint32_t version);
  /// A tensor that is saved in the place of what is computed from it, as the region saves any.
  void needs_substitute(const at::Tensor& tensor);
  /// An undefined tensor where the operator was called without it.
  void optional_input(const torch::autograd::SavedVariable& saved);
  void optional_input(Handle noted);

  void impossible() { possible_ = false; }

  /// What it needs from here on must not be expensive.
  void cheaply() { expensive_ = false; }

  /// Called without a graph, without autocast, and below all modes of Python.
  void computed_by(Function function) { function_ = std::move(function); }

  /// Stream: on the current one. Errors: c10::Error where something that it needs has been changed
  /// in place, and what the operator throws.
  [[nodiscard]] at::Tensor run() const;

  /// The operator that made the tensor, as autograd names its node; for messages.
  [[nodiscard]] std::string made_by() const;

  /// Whether a tensor is saved in the place of this one: it is there for nothing else.
  [[nodiscard]] bool save_substitute() const { return saves_instead_; }

  /// How many tensors are recomputed before this one, one behind the other.
  [[nodiscard]] int chain() const { return chain_; }

 private:
  struct Value {
    Handle handle;  // neither: an undefined tensor
    std::unique_ptr<Recipe> recipe;
  };

  Recipe(const RegionOptions* region, int depth, bool expensive)
      : region_(region), depth_(depth), expensive_(expensive) {}

  bool take(const torch::autograd::SavedVariable& saved);
  void take(Handle handle);

  const RegionOptions* const region_;  // until it is written
  const int depth_;
  bool expensive_;
  bool possible_ = true;
  bool saves_instead_ = false;
  const std::type_info* made_by_ = nullptr;  // the node's kind
  int chain_ = 0;
  c10::SmallVector<Value, 2> values_;
  Function function_;
};

}  // namespace spillway
