// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "emulator/operators/shapes/type_rules.h"

#include <ATen/ATen.h>
#include <ATen/core/dispatch/Dispatcher.h>

#include <string_view>
#include <vector>

namespace spillway::operators {

/// An operator whose tensors are at most this large is computed, so that flags and counts are
/// correct.
constexpr size_t kSmallBytes = 4096;

/// Derives an operator's results from its arguments' shapes.
///
/// Sizes that depend on data are assumed (SPILLWAY_EMULATE_ASSUME). By default everything is
/// selected, which is the maximum.
///
/// Threads: immutable.
class ShapeRule {
 public:
  explicit ShapeRule(const c10::OperatorHandle& op);

  /// Computes results as Meta tensors from arguments as Meta tensors, in `stack`; a returned
  /// argument is the same object. False if no rule is known; the stack is then unchanged.
  ///
  /// Errors: those of PyTorch's Meta kernel for invalid shapes, and of TypeRule for types.
  [[nodiscard]] bool apply(const c10::OperatorHandle& op, c10::Stack& stack) const;

 private:
  enum class Kind {
    kArguments,  // in place without a change of shapes: returns arguments
    kMeta,       // PyTorch's Meta kernel
    kSpecial,    // our own rule
    kNone
  };

  using Special = void (*)(const c10::OperatorHandle& op, c10::Stack& stack);

  static Special special_of(std::string_view name);
  static Kind kind_of(const c10::OperatorHandle& op);

  TypeRule types_;
  Kind kind_;
  Special special_;
  std::vector<size_t> returned_;  // of kArguments: the returned ones
};

/// The assumption that would give the operator a rule, as "unique=SHARE"; empty if there is none.
std::string_view assumption_for(std::string_view name);

}  // namespace spillway::operators
