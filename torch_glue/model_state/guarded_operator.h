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

  /// Whether it may change that argument. Operators of other libraries may change all of theirs:
  /// their schemas are not relied on.
  [[nodiscard]] bool writes(std::size_t argument) const { return writes_[argument]; }

  /// Whether it computes each element of its lists of tensors from the elements at the same place
  /// of the others.
  [[nodiscard]] bool takes_lists() const { return takes_lists_; }

 private:
  std::vector<bool> writes_;
  bool takes_lists_;
};

/// Runs the operator without the guard, for arguments on the stack.
void run_below_guard(const c10::OperatorHandle& op, c10::DispatchKeySet keys, c10::Stack* stack);

}  // namespace spillway
