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

/// Whether another library gives the parameter memory only while it is needed, with the same values
/// each time. Null for a program without Python, which has no such parameters.
using GatheredAgain = bool (*)(const at::Tensor& parameter);

void set_gathered_again(GatheredAgain gathered_again);

/// The parameters (leaves that require gradients) on which the saved tensors of one run of a
/// checkpointed call depend. They are distinguished by identity and by their memory at the time of
/// use. Arguments do not count.
///
/// Found by traversing the graph. Each node of the run is visited once; the search continues a few
/// operators back from tensors that were computed outside the run.
///
/// Threads: confined, except for const members.
class ParametersUsed {
 public:
  /// The parameters of the first run, or of one that repeats it with these arguments. The run
  /// begins now.
  explicit ParametersUsed(const std::vector<at::Tensor>& arguments,
                          const ParametersUsed* first = nullptr);

  /// Adds a saved tensor.
  void saved(const at::Tensor& tensor);

  /// Ends the run.
  void ended();

  /// Numbers of the saved tensors for which `repeated` has used other parameters than this run.
  [[nodiscard]] std::vector<std::size_t> others_in(const ParametersUsed& repeated) const;

  /// Whether this run has also used that parameter of another run.
  [[nodiscard]] bool has(const ParametersUsed& other, std::size_t number) const;

  /// Undefined if the parameter no longer exists, such as one that the run created itself.
  [[nodiscard]] at::Tensor parameter(std::size_t number) const {
    return parameters_[number].tensor();
  }

 private:
  /// The references prevent reuse of the addresses.
  struct Parameter {
    c10::weak_intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl> impl;
    std::optional<c10::weak_intrusive_ptr<c10::StorageImpl>> memory;  // if it counts

    [[nodiscard]] at::Tensor tensor() const;
    /// Whether it is the same parameter, in the same or equivalent memory.
    [[nodiscard]] bool is(const Parameter& other) const;
  };

  /// The point at which the graph of an argument begins.
  struct Argument {
    const torch::autograd::Node* node;
    std::uint32_t output;
  };

  void reach(const torch::autograd::Edge& from);
  bool is_argument(const torch::autograd::Edge& edge) const;
  bool is_new(const torch::autograd::Node& node);
  void uses(const at::Tensor& leaf);

  const std::uint64_t first_node_;
  std::vector<const torch::autograd::Node*> seen_;  // nodes of the run, by number
  std::vector<Argument> arguments_;
  std::vector<const c10::TensorImpl*> leaf_arguments_;
  std::vector<Parameter> parameters_;  // without duplicates
  std::vector<std::uint32_t> used_;    // their numbers, for one saved tensor after the other
  std::vector<std::uint32_t> ends_;    // end offset of each saved tensor
};

}  // namespace spillway
