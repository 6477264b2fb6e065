// SPDX-License-Identifier: Apache-2.0
#include "torch_glue/checkpoint/running_statistics.h"

#include "torch_glue/saved_storage/running_statistics.h"

#include <ATen/core/grad_mode.h>

#include <memory>
#include <string_view>
#include <utility>
#include <vector>

namespace spillway {
namespace {

thread_local RunningStatisticsKept* this_threads = nullptr;

/// begin() and end() run without a graph, versions or other observers.
class InternalOpsGuard {
 private:
  const at::NoGradGuard no_graph_;
  const at::RecordFunctionGuard unobserved_{false};
};

bool is_counter(const at::Tensor& tensor) {
  return tensor.defined() && tensor.dim() == 0 && tensor.scalar_type() == at::kLong;
}

/// Numbers are passed as such from C++, and as tensors from Python.
bool is_one(const c10::IValue& value) {
  if (!value.isTensor()) return value.isInt() && value.toInt() == 1;
  const at::Tensor& tensor = value.toTensor();
  if (!is_counter(tensor) || !tensor.unsafeGetTensorImpl()->is_wrapped_number()) return false;
  return *tensor.const_data_ptr<std::int64_t>() == 1;
}

}  // namespace

/// The state that a normalization is about to change.
struct RunningStatisticsKept::Kept final : at::ObserverContext {
  std::vector<std::pair<at::Tensor, at::Tensor>> statistics;  // and their values
  at::Tensor counter;                                         // incremented by one
};

RunningStatisticsKept::RunningStatisticsKept()
    : outer_(std::exchange(this_threads, this)),
      callback_(at::addThreadLocalCallback(at::RecordFunctionCallback(&begin, &end)
                                               .needsInputs(true)
                                               .scopes({at::RecordScope::FUNCTION}))) {}

RunningStatisticsKept::~RunningStatisticsKept() {
  at::removeCallback(callback_);
  this_threads = outer_;
}

std::unique_ptr<at::ObserverContext> RunningStatisticsKept::begin(const at::RecordFunction& call) {
  const std::string_view name = call.name();
  auto& self = *this_threads;
  if (name == "aten::add_") {
    const auto inputs = call.inputs();
    if (inputs.size() > 1 && inputs[0].isTensor() && is_counter(inputs[0].toTensor()) &&
        is_one(inputs[1])) {
      self.raised_ = inputs[0].toTensor();
    }
    return nullptr;
  }
  const auto statistics = running_statistics_of(call);
  if (statistics.empty()) return nullptr;

  const InternalOpsGuard unseen;
  auto kept = std::make_unique<Kept>();
  for (const at::Tensor& statistic : statistics) {
    // Another version counter, so that a graph that has saved it does not detect a change.
    const at::Tensor same = statistic.variable_data();
    kept->statistics.emplace_back(same, same.clone());
  }
  kept->counter = std::exchange(self.raised_, at::Tensor());
  return kept;
}

void RunningStatisticsKept::end(const at::RecordFunction& call, at::ObserverContext* kept) {
  static_cast<void>(call);
  if (kept == nullptr) return;
  const InternalOpsGuard unseen;
  const auto& changed = *static_cast<const Kept*>(kept);
  for (const auto& [statistic, value] : changed.statistics)
    statistic.copy_(value);
  if (changed.counter.defined()) changed.counter.variable_data().sub_(1);
}

}  // namespace spillway
