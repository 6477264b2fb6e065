// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/record_function.h>

#include <memory>
#include <vector>

namespace spillway {

/// What a normalization is given as running statistics; empty for any other call.
std::vector<at::Tensor> running_statistics_of(const at::RecordFunction& call);

/// Whether it has been given to a normalization as such while some RunningStatisticsSeen lived. Its
/// owner keeps it, and the normalization that saves it may write to it without a word to autograd.
/// Threads: safe.
bool is_running_statistic(const at::Tensor& tensor);

/// While it lives, the running statistics that this thread's normalizations are given are
/// remembered, whoever calls them. It costs each operator, so it is for a tag's first step.
/// Threads: ends on the thread that made it.
class RunningStatisticsSeen {
 public:
  RunningStatisticsSeen();
  ~RunningStatisticsSeen();
  RunningStatisticsSeen(const RunningStatisticsSeen&) = delete;
  RunningStatisticsSeen& operator=(const RunningStatisticsSeen&) = delete;

 private:
  const at::CallbackHandle callback_;
};

}  // namespace spillway
