// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/record_function.h>

#include <memory>

namespace spillway {

/// Suppresses updates of running statistics by the normalizations of this thread, and of the
/// counters incremented right before them. Applies to all callers. Writes by compiled graphs are
/// not covered.
///
/// Threads: must end on the thread that created it. Stream: the current one of each operator.
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
  at::Tensor raised_;  // possibly the counter of the next normalization
};

}  // namespace spillway
