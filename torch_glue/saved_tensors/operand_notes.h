// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/csrc/autograd/function.h>
#include <torch/library.h>

#include <cstdint>
#include <optional>

namespace spillway {

/// The versions of the inputs and the result of an operator with one or two tensors. Its node saves
/// neither operand, or not the one whose value no gradient needs. A recipe must obtain that operand
/// elsewhere, unchanged since its version here.
struct OperandVersions {
  std::uint32_t self;
  std::uint32_t other;
  std::uint32_t result;
  std::optional<at::Scalar> number{};  // replaces the other operand, for sums and differences
};

/// The versions for the node of a sum, difference, product or quotient that this thread has just
/// computed. None for an older node, and for one that saves both operands. For matrix products with
/// a bias: of the two matrices.
std::optional<OperandVersions> versions_of_operands(const torch::autograd::Node& node);

/// The version of a node's result `output` when it was computed. That of the last in-place operator
/// for nodes that are noted here, that of the end of a custom function that is recorded
/// (operator_calls.h), zero for all others. A tensor in another shape has the version of its base;
/// other views are not followed.
std::uint32_t version_of_result(const torch::autograd::Node& node, std::uint32_t output);

/// Adds the kernels that write these notes to the library (note_operators).
void note_operands(torch::Library& noting);

/// The dispatch key of these kernels. It is a thread-local mode before all other keys, unused by
/// other code.
constexpr auto kNotingKey = c10::DispatchKey::TESTING_ONLY_GenericMode;
constexpr c10::DispatchKeySet kBehindNoting(c10::DispatchKeySet::FULL_AFTER, kNotingKey);

}  // namespace spillway
