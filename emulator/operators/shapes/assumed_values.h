// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/ivalue.h>

#include <optional>
#include <string_view>

namespace spillway::operators {

/// The value that every element of an operator's result has, where what is assumed
/// (SPILLWAY_EMULATE_ASSUME) says so: of questions whether numbers are finite ("aten::isnan"), and
/// of logic and reductions over such answers. Threads: safe.
std::optional<double> assumed_everywhere(std::string_view name,
                                         c10::ArrayRef<c10::IValue> arguments,
                                         const at::Tensor& result);

/// Keeps what every element of a result holds that is too large to be filled, as long as it lives.
/// Threads: safe.
void remember_value(const at::Tensor& result, double value);

/// What remember_value was told of a tensor's storage; nothing once that has been written. Threads:
/// safe.
std::optional<double> remembered_value(const at::Tensor& tensor);

/// What a small result of an operator that was not run holds: what is assumed, one unless that says
/// otherwise; zero where a one would stand for a failure (the "info" of linalg), and no number
/// where numbers are assumed not to be finite.
double assumed_value(std::string_view name, const at::Tensor& result);

/// Writes it into all elements of a small tensor of the device. Requires: its stream is drained.
void fill_small(const at::Tensor& tensor, double value);

}  // namespace spillway::operators
