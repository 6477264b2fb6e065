// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/record_function.h>

#include <vector>

namespace spillway {

/// What a normalization is given as running statistics; empty for any other call.
std::vector<at::Tensor> running_statistics_of(const at::RecordFunction& call);

/// Whether some thread saw it be given to a normalization as such. Its owner keeps it, and the
/// normalization that saves it may write to it without a word to autograd.
/// Threads: safe.
bool is_running_statistic(const at::Tensor& tensor);

/// Whether the running statistics that this thread's normalizations are given are remembered from
/// now on, the code that calls them. It costs each operator, so it is for steps that are not known
/// yet.
void see_running_statistics(bool wanted);

}  // namespace spillway
