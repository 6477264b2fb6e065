// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/record_function.h>

#include <memory>

namespace spillway {

/// While it lives, the normalizations that this thread runs leave their running statistics as they
/// were, and the counters that are raised right before them, the code that calls them. What a
/// compiled graph writes is not seen.
///
/// Threads: ends on the thread that made it. Stream: on the current one of each operator.
class RunningStatisticsKept {
 public:
  RunningStatisticsKept();
  ~RunningStatisticsKept();
  RunningStatisticsKept(const RunningStatisticsKept&) = delete;
  RunningStatisticsKept& operator=(const RunningStatisticsKept&) = delete;

 private:
  struct Kept;

  static std::unique_ptr<at::ObserverContext> begin(const at::RecordFunction& call);
  static void end(const at::RecordFunction& call, at::ObserverContext* kept);

  RunningStatisticsKept* const outer_;
  const at::CallbackHandle callback_;
  at::Tensor raised_;  // perhaps the counter of the normalization that comes next
};

}  // namespace spillway
