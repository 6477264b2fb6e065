// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "emulator/operators/shapes/type_rules.h"

#include <ATen/ATen.h>
#include <ATen/core/dispatch/Dispatcher.h>

#include <string_view>
#include <vector>

namespace spillway::operators {

/// Where nothing that an operator touches is larger, it is computed, so that flags and counts are
/// true.
constexpr size_t kSmallBytes = 4096;

/// How an operator's results follow from its arguments' shapes alone.
///
/// Where data decides sizes they come from what is assumed (SPILLWAY_EMULATE_ASSUME): unless it
/// says otherwise everything is selected, which is the most that it can be.
///
/// Threads: immutable.
class ShapeRule {
 public:
  explicit ShapeRule(const c10::OperatorHandle& op);

  /// Results as Meta tensors from arguments as Meta tensors, in `stack`; an argument that is
  /// fetched is the same object. False where no rule is known; the stack is as it was then.
  ///
  /// Errors: raises what PyTorch's Meta kernel raises for shapes that do not fit, and what TypeRule
  /// does for types.
  [[nodiscard]] bool apply(const c10::OperatorHandle& op, c10::Stack& stack) const;

 private:
  enum class Kind {
    kArguments,  // in place, and the shapes stay: what is fetched are arguments
    kMeta,       // PyTorch's Meta kernel
    kSpecial,    // of ours
    kNone
  };

  using Special = void (*)(const c10::OperatorHandle& op, c10::Stack& stack);

  static Special special_of(std::string_view name);
  static Kind kind_of(const c10::OperatorHandle& op);

  TypeRule types_;
  Kind kind_;
  Special special_;
  std::vector<size_t> returned_;  // of kArguments: which are fetched
};

/// What could be assumed so that the operator has a rule, as "unique=SHARE"; empty where nothing.
std::string_view assumption_for(std::string_view name);

}  // namespace spillway::operators
