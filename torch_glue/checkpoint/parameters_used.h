// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/StorageImpl.h>
#include <torch/csrc/autograd/edge.h>
#include <torch/csrc/autograd/function.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace spillway {

/// Whether a parameter that another library gives memory only while it is needed, with the same
/// values each time. Null for a program without Python, where there are none.
using GatheredAgain = bool (*)(const at::Tensor& parameter);

void set_gathered_again(GatheredAgain gathered_again);

/// The parameters (leaves that want a gradient) on which the tensors depend that one run of a
/// checkpointed call saves, distinguished by what they are and by the memory that they had when
/// they were used. Arguments are none.
///
/// Found through the graph: each node of the run is looked at once, and from tensors that the run
/// has found elsewhere a few operators back.
///
/// Threads: confined, except for const members.
class ParametersUsed {
 public:
  /// Those of the first run, or of one that repeats it with these arguments; begins now.
  explicit ParametersUsed(const std::vector<at::Tensor>& arguments,
                          const ParametersUsed* first = nullptr);

  /// The run saves `tensor`. `memory_counts`: nothing puts parameters elsewhere on purpose.
  void saved(const at::Tensor& tensor, bool memory_counts);

  /// Nothing more is saved.
  void ended();

  /// Numbers of those that `repeated` has used where this run has used others.
  [[nodiscard]] std::vector<std::size_t> others_in(const ParametersUsed& repeated) const;

  /// Whether this run has used that one of another run's too.
  [[nodiscard]] bool has(const ParametersUsed& other, std::size_t number) const;

  /// Undefined where it is gone, as are those that a run has made itself and nothing keeps.
  [[nodiscard]] at::Tensor parameter(std::size_t number) const {
    return parameters_[number].tensor();
  }

 private:
  /// The references keep the addresses from being used again.
  struct Parameter {
    c10::weak_intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl> impl;
    std::optional<c10::weak_intrusive_ptr<c10::StorageImpl>> memory;  // where it counts

    [[nodiscard]] at::Tensor tensor() const;
    /// The same one, in the same memory or as good as that.
    [[nodiscard]] bool is(const Parameter& other) const;
  };

  /// Where the graph of an argument begins.
  struct Argument {
    const torch::autograd::Node* node;
    std::uint32_t output;
  };

  void reach(const torch::autograd::Edge& from, bool memory_counts);
  bool is_argument(const torch::autograd::Edge& edge) const;
  bool is_new(const torch::autograd::Node& node);
  void uses(const at::Tensor& leaf, bool memory_counts);

  const std::uint64_t first_node_;
  std::vector<const torch::autograd::Node*> seen_;  // of the run, by number
  std::vector<Argument> arguments_;
  std::vector<const c10::TensorImpl*> leaf_arguments_;
  std::vector<Parameter> parameters_;  // each once
  std::vector<std::uint32_t> used_;    // their numbers, one saved tensor after the other
  std::vector<std::uint32_t> ends_;    // where each saved tensor's end
};

}  // namespace spillway
