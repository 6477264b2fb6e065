// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "torch_glue/base/compat.h"
#include "torch_glue/saved_tensors/layout.h"
#include "torch_glue/saved_tensors/repeated_operator.h"
#include "torch_glue/saved_tensors/saved_version.h"

#include <c10/util/SmallVector.h>
#include <torch/library.h>

#include <cstdint>
#include <memory>
#include <vector>

namespace spillway {

/// A tensor passed to an operator that can be repeated. It references neither the tensor nor its
/// memory.
struct PassedTensor {
  PassedTensor() = default;  // an undefined tensor
  explicit PassedTensor(const at::Tensor& given);

  [[nodiscard]] bool defined() const { return defined_; }

  [[nodiscard]] bool is_of(const c10::StorageImpl& other) const {
    return storage._unsafe_get_target() == &other;
  }

  c10::weak_intrusive_ptr<c10::StorageImpl> storage{c10::intrusive_ptr<c10::StorageImpl>()};
  /// A frozen parameter or a small tensor itself; empty for others.
  c10::weak_intrusive_ptr<c10::TensorImpl> tensor{c10::intrusive_ptr<c10::TensorImpl>()};
  Layout layout;
  SavedVersion version;
  compat::WeakNodePtr node{};  // that computed it, or accumulates its gradient
  std::uint32_t output = 0;    // of the node

 private:
  bool defined_ = false;
};

/// A call of an operator that can be repeated.
struct OperatorCall {
  std::shared_ptr<const RepeatedCall> repeated;
  c10::SmallVector<PassedTensor, 3> operands;
  c10::SmallVector<std::uint32_t, 0> versions;  // of results when the call ended; others are zero

  [[nodiscard]] bool has(const c10::StorageImpl& storage) const;
  /// Whether an operand has been changed in place since.
  [[nodiscard]] bool operands_changed() const;

  [[nodiscard]] std::uint32_t version_of_result(std::uint32_t output) const {
    return output < versions.size() ? versions[output] : 0;
  }
};

/// Whether a node will be made for a call with these arguments, and its tensors can be obtained
/// again.
bool is_recorded(c10::ArrayRef<c10::IValue> arguments);

/// During its lifetime, this thread runs a call.
class RunningCall {
 public:
  /// `repeated`: null if the call cannot be repeated.
  RunningCall(std::shared_ptr<const RepeatedCall> repeated, c10::ArrayRef<c10::IValue> arguments);
  ~RunningCall();
  RunningCall(const RunningCall&) = delete;
  RunningCall& operator=(const RunningCall&) = delete;

  /// The call has ended: call_of() finds it by its results' nodes from now on.
  void made(c10::ArrayRef<c10::IValue> results);
  /// As made(), for results that the call may have changed in place, or whose operands it may have.
  void made_with_versions(c10::ArrayRef<c10::IValue> results);

 private:
  std::shared_ptr<OperatorCall> call_;
  const std::shared_ptr<const OperatorCall> outer_;
  // Of its leaves, whose nodes nothing else may reference before the call's node does.
  std::vector<torch::autograd::Edge> accumulating_;
};

/// The call that made the node, if it was one of the latest on this thread; null for other nodes.
std::shared_ptr<const OperatorCall> call_of(const torch::autograd::Node& node);

/// The call that this thread runs; null if there is none.
const std::shared_ptr<const OperatorCall>& current_call();

/// Adds the kernels that record calls to the library (note_operators).
void note_calls(torch::Library& noting);

}  // namespace spillway
