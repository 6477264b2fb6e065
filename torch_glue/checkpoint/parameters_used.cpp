// SPDX-License-Identifier: Apache-2.0
#include "torch_glue/checkpoint/parameters_used.h"

#include <ATen/SequenceNumber.h>
#include <c10/util/SmallVector.h>
#include <torch/csrc/autograd/functions/accumulate_grad.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <atomic>
#include <utility>

namespace spillway {
namespace {

namespace autograd = torch::autograd;

constexpr int kOperatorsOutside = 4;

std::atomic<GatheredAgain> gathered_again_of_python{nullptr};

bool is_gathered_again(const at::Tensor& parameter) {
  const GatheredAgain asked = gathered_again_of_python;
  return asked != nullptr && parameter.defined() && asked(parameter);
}

/// Gradient accumulators have a sequence number that no other node has.
const at::Tensor* leaf_of(const autograd::Node& node) {
  if (node.sequence_nr() != UINT64_MAX) return nullptr;
  const auto* const sums = dynamic_cast<const autograd::AccumulateGrad*>(&node);
  return sums == nullptr ? nullptr : &sums->variable;
}

}  // namespace

void set_gathered_again(GatheredAgain gathered_again) {
  gathered_again_of_python = gathered_again;
}

bool ParametersUsed::Parameter::is(const Parameter& other) const {
  if (impl._unsafe_get_target() != other.impl._unsafe_get_target()) return false;
  return !memory || !other.memory ||
         memory->_unsafe_get_target() == other.memory->_unsafe_get_target() ||
         is_gathered_again(tensor());
}

at::Tensor ParametersUsed::Parameter::tensor() const {
  const auto alive = impl.lock();
  return alive.defined() ? at::Tensor(alive) : at::Tensor();
}

ParametersUsed::ParametersUsed(const std::vector<at::Tensor>& arguments,
                               const ParametersUsed* first)
    : first_node_(at::sequence_number::peek()) {
  if (first != nullptr) leaf_arguments_ = first->leaf_arguments_;
  for (const at::Tensor& argument : arguments) {
    if (!argument.requires_grad()) continue;
    if (argument.is_leaf()) {
      leaf_arguments_.push_back(argument.unsafeGetTensorImpl());
    } else {
      arguments_.push_back(
          {argument.grad_fn().get(), static_cast<std::uint32_t>(argument.output_nr())});
    }
  }
}

void ParametersUsed::saved(const at::Tensor& tensor) {
  if (tensor.requires_grad() &&
      !tensor.key_set().has_any(c10::DispatchKeySet(c10::DispatchKey::FuncTorchGradWrapper))) {
    if (tensor.is_leaf()) {
      uses(tensor);
    } else {
      reach({tensor.grad_fn(), static_cast<std::uint32_t>(tensor.output_nr())});
    }
  }
  ends_.push_back(static_cast<std::uint32_t>(used_.size()));
}

void ParametersUsed::reach(const autograd::Edge& from) {
  struct Step {
    const autograd::Edge* edge;
    int operators;  // remaining operators to search beyond the run
  };

  c10::SmallVector<Step, 32> left{{&from, kOperatorsOutside}};
  while (!left.empty()) {
    const Step step = left.pop_back_val();
    const autograd::Node* const node = step.edge->function.get();
    if (node == nullptr) continue;
    if (const at::Tensor* const leaf = leaf_of(*node)) {
      uses(*leaf);
      continue;
    }
    if (is_argument(*step.edge)) continue;
    const std::uint64_t number = node->sequence_nr();
    const bool of_this_run = number >= first_node_ && number < at::sequence_number::peek();
    if (of_this_run ? !is_new(*node) : step.operators == 0) continue;
    const int operators = of_this_run ? step.operators : step.operators - 1;
    for (const autograd::Edge& next : node->next_edges())
      left.push_back({&next, operators});
  }
}

bool ParametersUsed::is_argument(const autograd::Edge& edge) const {
  return std::any_of(arguments_.begin(), arguments_.end(), [&](const Argument& one) {
    return one.node == edge.function.get() && one.output == edge.input_nr;
  });
}

bool ParametersUsed::is_new(const autograd::Node& node) {
  const std::size_t index = node.sequence_nr() - first_node_;
  if (index >= seen_.size()) seen_.resize(index + 1, nullptr);
  return std::exchange(seen_[index], &node) != &node;
}

void ParametersUsed::uses(const at::Tensor& leaf) {
  const auto* const impl = leaf.unsafeGetTensorImpl();
  const bool given =
      std::find(leaf_arguments_.begin(), leaf_arguments_.end(), impl) != leaf_arguments_.end();
  if (given || leaf.numel() == 0) return;
  const bool own_memory = impl->has_storage() && !impl->key_set().has(c10::DispatchKey::Python);
  const auto* const memory = own_memory ? impl->storage().unsafeGetStorageImpl() : nullptr;
  const auto known =
      std::find_if(parameters_.begin(), parameters_.end(), [&](const Parameter& one) {
        return one.impl._unsafe_get_target() == impl &&
               (one.memory ? one.memory->_unsafe_get_target() : nullptr) == memory;
      });
  used_.push_back(static_cast<std::uint32_t>(known - parameters_.begin()));
  if (known != parameters_.end()) return;
  parameters_.push_back({decltype(Parameter::impl)(leaf.getIntrusivePtr()), std::nullopt});
  if (own_memory) parameters_.back().memory = impl->storage().getWeakStorageImpl();
}

void ParametersUsed::ended() {
  arguments_ = {};
  seen_ = {};
}

std::vector<std::size_t> ParametersUsed::others_in(const ParametersUsed& repeated) const {
  std::vector<std::size_t> others;
  std::size_t mine = 0;
  std::size_t theirs = 0;
  const std::size_t count = std::min(ends_.size(), repeated.ends_.size());
  for (std::size_t saved = 0; saved < count; ++saved) {
    // If frozen parameters in between are no longer used, any that the first run has used are
    // accepted.
    const bool pairs = ends_[saved] - mine == repeated.ends_[saved] - theirs;
    for (; theirs < repeated.ends_[saved]; ++theirs, ++mine) {
      const std::size_t number = repeated.used_[theirs];
      const bool same =
          pairs ? parameters_[used_[mine]].is(repeated.parameters_[number]) : has(repeated, number);
      if (same) continue;
      if (std::find(others.begin(), others.end(), number) == others.end()) others.push_back(number);
    }
    mine = ends_[saved];
  }
  return others;
}

bool ParametersUsed::has(const ParametersUsed& other, std::size_t number) const {
  return std::any_of(parameters_.begin(), parameters_.end(), [&](const Parameter& one) {
    return one.is(other.parameters_[number]);
  });
}

}  // namespace spillway
