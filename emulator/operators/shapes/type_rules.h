// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

#include <string_view>

namespace spillway::operators {

/// The tensor types that an operator supports on a GPU, if PyTorch's Meta kernels do not check
/// them: a program that fails on a GPU must fail here.
///
/// Threads: immutable.
class TypeRule {
 public:
  /// Of `aten::mm`, `aten::mm.out` and the like.
  explicit TypeRule(const c10::OperatorHandle& op);

  /// Errors: raises c10::Error (in Python RuntimeError, or NotImplementedError if the operator has
  /// no kernel for a type).
  void check(const c10::OperatorHandle& op, const c10::Stack& stack) const;

 private:
  std::string_view arguments_;  // a letter for each of the first arguments
};

}  // namespace spillway::operators
