// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/csrc/autograd/function.h>
#include <torch/library.h>

#include <cstdint>
#include <optional>

namespace spillway {

/// The versions of what an operator of one or two tensors was given, and of what it gave. Its node
/// keeps nothing, or nothing of the one whose value no gradient needs: that one must be had
/// elsewhere, and have been as it is there.
struct OperandVersions {
  std::uint32_t self;
  std::uint32_t other;
  std::uint32_t result;
  std::optional<at::Scalar> number{};  // in place of the other one, of sums and differences
};

/// Of the node of a sum, a difference, a product or a quotient that this thread has just computed;
/// none of one longer ago, and of one that keeps both. Products of matrices with a bias: of the two
/// matrices.
std::optional<OperandVersions> versions_of_operands(const torch::autograd::Node& node);

/// The version that the result of a node had when it was computed: that of the last in-place
/// operator for those that are noted here, zero for all others. A tensor in another shape has that
/// of what it is a view of; other views are not followed.
std::uint32_t version_of_result(const torch::autograd::Node& node);

/// A tensor that an operator was given.
struct Source {
  at::Tensor tensor;  // undefined where it is gone, or has been changed since
  at::ScalarType type;
  std::uint32_t version;  // when it was given
};

/// Of the node of a cast that this thread has just computed; none of one longer ago.
std::optional<Source> source_of_cast(const torch::autograd::Node& node);

/// The bias of a product of matrices that this thread has just computed, where it is still there,
/// and otherwise the tensor that it was a cast of; `type` is the bias's. None of one longer ago.
std::optional<Source> bias_of_product(const torch::autograd::Node& node);

/// Adds the kernels that write this down to those that note (note_operators).
void note_operands(torch::Library& noting);

/// The key of the kernels that note: a mode of the thread, in front of all that an operator meets,
/// which nothing else's code uses.
constexpr auto kNotingKey = c10::DispatchKey::TESTING_ONLY_GenericMode;
constexpr c10::DispatchKeySet kBehindNoting(c10::DispatchKeySet::FULL_AFTER, kNotingKey);

}  // namespace spillway
