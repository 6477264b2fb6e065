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

/// Writes it into all elements of a small tensor of the device, which is filled from then on.
/// Requires: its stream is drained. Threads: safe for different tensors.
void fill_small(const at::Tensor& tensor, double value);

/// The tensor has been written, by fill_small or a copy of what is known, although its storage is
/// large, as that of a loss that was reduced in place. Does nothing for small storages. Threads:
/// safe.
void note_filled(const at::Tensor& tensor);
/// Whether that was the last part of its large storage to be noted: operators on it can be
/// computed. Threads: safe.
bool is_filled(const at::Tensor& tensor);
/// Whether what the tensor holds is true, or what is documented: its storage is small, or it was
/// filled. Threads: safe.
bool is_known(const at::Tensor& tensor);

}  // namespace spillway::operators
