// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/ivalue.h>

#include <optional>
#include <string_view>

namespace spillway::operators {

/// The value of every element of an operator's result, if the assumptions (SPILLWAY_EMULATE_ASSUME)
/// determine it: for tests of finiteness ("aten::isnan"), and for logic and reductions of their
/// results.
/// Threads: safe.
std::optional<double> assumed_everywhere(std::string_view name,
                                         c10::ArrayRef<c10::IValue> arguments,
                                         const at::Tensor& result);

/// Stores the uniform value of a result that is too large to be filled, for the result's lifetime.
/// Threads: safe.
void remember_value(const at::Tensor& result, double value);

/// The stored value of a tensor's storage; none once the storage has been written. Threads: safe.
std::optional<double> remembered_value(const at::Tensor& tensor);

/// The value of a small result of an operator that was not run: the assumed value, one by default.
/// Zero if a one would indicate a failure (the "info" of linalg), and NaN if numbers are assumed
/// not to be finite.
double assumed_value(std::string_view name, const at::Tensor& result);

/// Writes it to all elements of a small device tensor, which counts as filled from then on.
/// Requires: its stream is drained.
/// Threads: safe for different tensors.
void fill_small(const at::Tensor& tensor, double value);

/// Marks the tensor as written, by fill_small or a copy of known values, although its storage is
/// large, such as a loss that was reduced in place. Does nothing for small storages.
/// Threads: safe.
void note_filled(const at::Tensor& tensor);
/// Whether all parts of its large storage are marked: operators on it can be computed.
/// Threads: safe.
bool is_filled(const at::Tensor& tensor);
/// Whether the tensor's values are true or documented: its storage is small, or it was filled.
/// Threads: safe.
bool is_known(const at::Tensor& tensor);

}  // namespace spillway::operators
