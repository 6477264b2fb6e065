// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

namespace spillway {

/// Marks the guarded operator that this thread runs, for reports. It costs a write to thread-local
/// memory at each end.
/// Threads: confined. Ownership: borrows the operator and the stack, which has its arguments from
/// `first` on. The operator may take them off.
class RunningOperator {
 public:
  RunningOperator(const c10::OperatorHandle& op, const c10::Stack& stack, std::size_t first)
      : op_(op), stack_(stack), first_(first), outer_(std::exchange(innermost(), this)) {}

  ~RunningOperator() { innermost() = outer_; }

  RunningOperator(const RunningOperator&) = delete;
  RunningOperator& operator=(const RunningOperator&) = delete;

  /// The name of this thread's operator, such as "aten::add.Tensor": the guarded one, or else the
  /// outermost one on the call stack. Empty if none runs. Not for hot paths: it may walk the call
  /// stack.
  static std::string name();

  /// The tensors that the guarded operator has as arguments; none if no guarded one runs.
  static std::vector<at::Tensor> tensors();

 private:
  static const RunningOperator*& innermost();

  const c10::OperatorHandle& op_;
  const c10::Stack& stack_;
  const std::size_t first_;
  const RunningOperator* const outer_;
};

}  // namespace spillway
