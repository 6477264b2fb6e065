// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "torch_glue/saved_tensors/random_start.h"

#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

#include <cstdint>
#include <optional>
#include <vector>

namespace spillway {

/// How an operator is repeated. An operator is in the table (repeated_kinds) if it returns the same
/// bits for the same arguments on the same machine, has no other effect, and its arguments are all
/// that it depends on. It is not composed of others, and its node saves nothing but its arguments
/// and results.
struct RepeatedKind {
  const char* name;  // in aten, with overload

  enum Trait : unsigned {
    kExpensive = 1U << 0U,   // as Rules::add_expensive
    kView = 1U << 1U,        // its results share its first argument's memory
    kIndex = 1U << 2U,       // its second result is an index, which its node saves
    kDraws = 1U << 3U,       // random numbers, unless its argument dropout_p is zero
    kBenchmarks = 1U << 4U,  // torch.backends.cudnn.benchmark may select another algorithm
    kScans = 1U << 5U,       // of a tensor with one dimension, it adds in no fixed order
    kWorkspace = 1U << 6U,   // its last result is a workspace, which its node saves
    // A recurrent layer of cuDNN. Its fourth result is the reserve, which its node saves. Its bits
    // depend on the timing of cuBLAS's streams, unless cuBLAS has a workspace of one size.
    kRecurrent = 1U << 7U,
  };

  unsigned traits = 0;

  [[nodiscard]] bool is(Trait trait) const { return (traits & trait) != 0; }
};

/// The table, in recompute/repeated.cpp.
c10::ArrayRef<RepeatedKind> repeated_kinds();

/// A call that can be repeated, without its tensors.
class RepeatedCall {
 public:
  explicit RepeatedCall(const RepeatedKind& kind) : kind_(kind) {}

  virtual ~RepeatedCall() = default;
  RepeatedCall(const RepeatedCall&) = delete;
  RepeatedCall& operator=(const RepeatedCall&) = delete;

  [[nodiscard]] const RepeatedKind& kind() const { return kind_; }

  /// The result `output` of the same call with these tensors. Results are numbered as the outputs
  /// of the call's node; numbers beyond are of tensors that only the node saves.
  [[nodiscard]] virtual at::Tensor repeat(at::ArrayRef<at::Tensor> tensors,
                                          std::uint32_t output) const = 0;

  /// The number of a tensor that the node saves while the call runs, and that is none of the call's
  /// arguments; none if it is no result.
  [[nodiscard]] virtual std::optional<std::uint32_t> number_of(const at::Tensor& saved) const = 0;

 private:
  const RepeatedKind& kind_;
};

/// A call of an operator.
class RepeatedOperator final : public RepeatedCall {
 public:
  /// Whether the call, of which these are the arguments, can be repeated now.
  static bool possible(const c10::OperatorHandle& op,
                       const RepeatedKind& kind,
                       c10::ArrayRef<c10::IValue> arguments);

  RepeatedOperator(const c10::OperatorHandle& op,
                   const RepeatedKind& kind,
                   c10::ArrayRef<c10::IValue> arguments);

  /// Calls `function` with each tensor among the arguments, undefined ones too, in the order in
  /// which repeat() takes them.
  template <typename Function>
  static void for_each_tensor(c10::ArrayRef<c10::IValue> arguments, Function function) {
    for (const c10::IValue& value : arguments) {
      if (value.isTensor()) {
        function(value.toTensor());
      } else if (value.isTensorList()) {
        for (const at::Tensor& each : value.toTensorVector())
          function(each);
      } else if (value.isOptionalTensorList()) {
        for (const std::optional<at::Tensor>& each : value.toOptionalTensorList())
          function(each.value_or(at::Tensor()));
      }
    }
  }

  /// The arguments to repeat the call with.
  static std::vector<c10::IValue> arguments_of(const c10::OperatorHandle& op,
                                               const RepeatedKind& kind,
                                               c10::ArrayRef<c10::IValue> arguments);

  /// Of an operator that returns a list, its element `output`.
  [[nodiscard]] at::Tensor repeat(at::ArrayRef<at::Tensor> tensors,
                                  std::uint32_t output) const override;

  [[nodiscard]] std::optional<std::uint32_t> number_of(const at::Tensor& saved) const override;

 private:
  const c10::OperatorHandle op_;
  torch::jit::Stack arguments_;  // an integer replaces a tensor; a list keeps its length
  c10::SmallVector<char, 8> forms_;
  std::optional<RandomStart> random_;
};

}  // namespace spillway
