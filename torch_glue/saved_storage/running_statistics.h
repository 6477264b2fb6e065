// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/record_function.h>

#include <vector>

namespace spillway {

/// The running statistics passed to a normalization; empty for any other call.
std::vector<at::Tensor> running_statistics_of(const at::RecordFunction& call);

/// Whether the tensor was passed to a normalization as running statistics. Its owner keeps it, and
/// the normalization that saves it may write to it without a version change.
/// Threads: safe.
bool is_running_statistic(const at::Tensor& tensor);

/// Enables or disables tracking of the running statistics passed to this thread's normalizations.
/// It adds overhead to each operator, so enable it only for unknown steps.
void see_running_statistics(bool wanted);

}  // namespace spillway
