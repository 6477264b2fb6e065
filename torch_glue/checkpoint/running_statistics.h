// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/record_function.h>

#include <vector>

namespace spillway {

/// While it lives, the normalizations that this thread runs leave their running statistics as they
/// were, whoever calls them, and the counters that they raise before are put back at its end. What
/// a compiled graph writes is not seen.
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
  void put_counters_back() noexcept;

  RunningStatisticsKept* const outer_;
  const at::CallbackHandle callback_;
  at::Tensor raised_;                 // perhaps the counter of the normalization that comes next
  std::vector<at::Tensor> counters_;  // raised by one for a normalization
};

}  // namespace spillway
