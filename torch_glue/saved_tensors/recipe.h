// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "allocator/base/pooled.h"
#include "torch_glue/base/compat.h"
#include "torch_glue/saved_storage/recompute_chain.h"

#include <ATen/core/Tensor.h>
#include <c10/util/SmallVector.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/saved_variable.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <typeinfo>
#include <vector>

namespace spillway {

class PackHook;
class SharedStorage;
struct PassedTensor;
struct OperandVersions;
struct OperatorCall;
struct RegionOptions;

/// Recomputes one tensor, bit for bit, by the operator that produced it, from tensors that the
/// graph keeps anyway. It owns handles of its inputs, and no node. A producer may therefore release
/// its tensors before the recipe is used.
///
/// Threads: written on one thread; run() on any.
class Recipe : public Pooled<Recipe> {
 public:
  using Values = at::ArrayRef<at::Tensor>;
  using Function = std::function<at::Tensor(Values)>;
  using Handle = std::shared_ptr<PackHook>;

  /// Maximum length of a chain of tensors that are recomputed one from another. Intermediate
  /// results occupy memory until their own use.
  static constexpr int kLongestChain = 3;
  /// Likewise under a budget, whose plan accounts for the memory: about one block of a network.
  static constexpr int kLongestPlanned = 12;
  /// Inputs with a chain of this length end it under a budget where it is narrow (should_end).
  static constexpr int kLongPlanned = 8;
  /// What an expensive operator adds to the length of a chain; others add one.
  static constexpr int kExpensive = 2;
  /// Maximum number of consecutive operators whose results are not saved, without views.
  static constexpr int kDeepest = 4;

  /// The recipe of output `output` of `node`; none if there is no rule for it or an input is
  /// unavailable. `region` is the region that saves it; `expensive`: whether expensive rules apply
  /// in it if it has a budget.
  /// Requires: the forward pass of the node is over.
  static std::unique_ptr<Recipe> of(const torch::autograd::Node& node,
                                    std::uint32_t output,
                                    const RegionOptions& region,
                                    int depth = 0,
                                    bool expensive = true);

  /// The recipe of the call's result `output`; otherwise as of().
  static std::unique_ptr<Recipe> of_call(const OperatorCall& call,
                                         std::uint32_t output,
                                         const RegionOptions& region,
                                         int depth = 0,
                                         bool expensive = true);

  /// A recipe without inputs.
  static std::unique_ptr<Recipe> of_nothing(Function function);

  /// Rules add the inputs in the order in which the Function takes them. An unavailable input makes
  /// the recipe impossible.
  void needs(const torch::autograd::SavedVariable& saved);
  /// Adds one of the operator's two tensor operands: as needs(saved), or as needs_result() of this
  /// edge if the node did not need it and saved nothing.
  void needs_operand(const torch::autograd::Node& node,
                     const torch::autograd::SavedVariable& saved,
                     std::uint32_t edge,
                     std::uint32_t OperandVersions::*version);
  /// Adds the result of the node behind the edge, even if no node saved it. `version` is the
  /// tensor's version at its use; with it, in-place changes outside the graph are detected.
  void needs_result(const torch::autograd::Edge& edge, std::uint32_t version);
  /// Adds an operand of a call: from a tensor that some node saves, or else as needs_result().
  void needs_passed(const PassedTensor& operand);
  /// Adds a tensor that is kept anyway, such as a parameter, at its version `version`.
  void needs_kept(const at::Tensor& tensor, std::uint32_t version);
  /// Adds a tensor that is saved instead of the tensor recomputed from it, as the region saves any
  /// tensor.
  void needs_substitute(const at::Tensor& tensor);
  /// Adds an undefined tensor if the operator was called without it.
  void optional_input(const torch::autograd::SavedVariable& saved);
  void optional_input(Handle noted);

  void reject() { possible_ = false; }

  /// The result is a view of its only input, and costs no more than that.
  void is_view() {
    --depth_;
    own_ = 1;
  }

  /// Called without a graph, without autocast, and below all Python modes.
  void computed_by(Function function) { function_ = std::move(function); }

  /// Runs the recipe.
  /// Stream: the current one.
  /// Errors: c10::Error if an input has been changed in place; errors of the operator.
  [[nodiscard]] at::Tensor run() const;

  /// Whether all that it needs still has its memory (PackHook::available).
  [[nodiscard]] bool available() const;

  /// The operator that produced the tensor, by the name of its autograd node; for messages.
  [[nodiscard]] std::string made_by() const;

  /// Whether another tensor is saved instead of this one, for no other purpose.
  [[nodiscard]] bool save_substitute() const { return save_substitute_; }

  /// The storages of those tensors, as far as their region decides on them.
  [[nodiscard]] const std::vector<std::shared_ptr<SharedStorage>>& substitutes() const {
    return substitutes_;
  }

  /// The chain that ends with the result, which has `size` bytes.
  [[nodiscard]] RecomputeChain chain(Bytes size) const;

  /// Whether the chain ends here: it is long, and the result is no wider than the rest of it. To
  /// recompute more from the result then takes the least memory.
  [[nodiscard]] bool should_end(Bytes size) const;

 private:
  struct Value {
    Handle handle;  // neither: an undefined tensor
    std::unique_ptr<Recipe> recipe;
  };

  Recipe(const RegionOptions* region, int depth, bool expensive)
      : region_(region), depth_(depth), expensive_(expensive) {}

  bool take(const torch::autograd::SavedVariable& saved);
  /// False for a null or unavailable handle.
  bool take(Handle handle);
  /// Takes the handle's tensor, cast to that type.
  bool take_cast(Handle handle, at::ScalarType type);

  /// Whether it can be run, and its chain is not too long.
  [[nodiscard]] bool is_whole() const;

  const RegionOptions* const region_;  // until the recipe is written
  int depth_;
  const bool expensive_;
  bool possible_ = true;
  bool save_substitute_ = false;
  std::vector<std::shared_ptr<SharedStorage>> substitutes_;
  const std::type_info* made_by_ = nullptr;  // type of the node
  const char* made_by_call_ = nullptr;       // name of the operator
  RecomputeChain chain_;                     // of the inputs
  int own_ = 1;                              // what the operator adds to it
  c10::SmallVector<Value, 2> values_;
  Function function_;
};

/// Records that this thread has packed the tensor, to be kept or offloaded. A recipe can use it
/// even if the operator that produced it has no rule. For regions without a budget only, because a
/// plan would not know of the dependency. Threads: each knows its own latest saves.
void note_result(const at::Tensor& tensor, const PackHook& packed);

}  // namespace spillway
