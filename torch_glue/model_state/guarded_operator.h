// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>

#include <cstddef>
#include <vector>

namespace spillway {

/// What the guard has to know of an operator's schema.
class GuardedOperator {
 public:
  /// Threads: safe; one lookup per thread and operator.
  static const GuardedOperator& of(const c10::OperatorHandle& op);

  explicit GuardedOperator(const c10::FunctionSchema& schema);

  [[nodiscard]] std::size_t arguments() const { return writes_.size(); }

  /// Whether this also describes an operator of another library with that schema.
  [[nodiscard]] bool is_of(const c10::FunctionSchema& schema) const {
    return schema.arguments().size() == arguments();
  }

  /// The arguments that may have tensors or storages.
  [[nodiscard]] const std::vector<std::size_t>& tensors() const { return tensors_; }

  /// Whether it may change that argument. Operators of other libraries may change all of theirs:
  /// their schemas are not relied on. Normalizations update running statistics, whatever their
  /// schemas declare.
  [[nodiscard]] bool writes(std::size_t argument) const { return writes_[argument]; }

  /// Whether it computes each element of its lists of tensors from the elements at the same place
  /// of the others, and returns lists of these.
  [[nodiscard]] bool takes_lists() const { return takes_lists_; }

  /// Whether PyTorch implements it, on its arguments alone.
  [[nodiscard]] bool of_pytorch() const { return of_pytorch_; }

  /// Whether it makes its first argument a view of another storage.
  [[nodiscard]] bool sets_storage() const { return sets_storage_; }

  /// Whether it makes another tensor over its argument's storage, whose bytes it does not need.
  [[nodiscard]] bool detaches() const { return detaches_; }

  /// Whether it casts its first argument.
  [[nodiscard]] bool casts() const { return casts_; }

  /// Whether its result contains its arguments, and is no view of them: a sparse or nested tensor.
  [[nodiscard]] bool wraps() const { return wraps_; }

 private:
  std::vector<bool> writes_;
  std::vector<std::size_t> tensors_;
  bool takes_lists_;
  bool of_pytorch_;
  bool sets_storage_;
  bool detaches_;
  bool casts_;
  bool wraps_;
};

/// Runs the operator without the guard, for arguments on the stack.
void run_below_guard(const GuardedOperator& known,
                     const c10::OperatorHandle& op,
                     c10::DispatchKeySet keys,
                     c10::Stack* stack);

}  // namespace spillway
