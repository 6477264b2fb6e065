// SPDX-License-Identifier: Apache-2.0
#include "emulator/operators/collectives.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

namespace spillway::operators {
namespace {

using Group = c10::intrusive_ptr<c10d::ProcessGroup>;
using Reduction = c10::intrusive_ptr<c10d::ReduceOp>;
using WorkPtr = c10::intrusive_ptr<c10d::Work>;

/// The reduction that the group's backend has, and the factor that every share gets before it.
struct Scaled {
  c10d::ReduceOp reduction;
  std::optional<double> factor;

  Scaled(const Group& group, const Reduction& asked) : reduction(*asked) {
    const auto backend = group->getBackend(c10::DeviceType::CUDA);
    if (reduction == c10d::ReduceOp::AVG && backend->getBackendName() == "gloo") {
      reduction = c10d::ReduceOp::SUM;
      factor = 1.0 / group->getSize();
    }
  }

  [[nodiscard]] at::Tensor share(const at::Tensor& tensor) const {
    return factor ? tensor * *factor : tensor;
  }

  template <class Options>
  [[nodiscard]] Options options(bool async, int64_t timeout) const {
    Options made;
    made.reduceOp = reduction;
    made.timeout = std::chrono::milliseconds(timeout);
    made.asyncOp = async;
    return made;
  }
};

std::tuple<std::vector<at::Tensor>, WorkPtr> allreduce(
    at::TensorList tensors,
    const Group& group,
    const Reduction& reduction,
    const std::optional<at::Tensor>& sparse_indices,
    bool async,
    int64_t timeout) {
  const at::AutoDispatchBelowADInplaceOrView below;
  const Scaled scaled(group, reduction);
  auto in_place = tensors.vec();
  if (scaled.factor) {
    for (at::Tensor& tensor : in_place)
      tensor.mul_(*scaled.factor);
  }
  auto options = scaled.options<c10d::AllreduceOptions>(async, timeout);
  options.sparseIndices = sparse_indices;
  auto work = group->getBackend(c10::DeviceType::CUDA)->allreduce(in_place, options);
  return {std::move(in_place), std::move(work)};
}

std::tuple<std::vector<at::Tensor>, WorkPtr> reduce_scatter(
    const at::TensorList& outputs,
    const std::vector<std::vector<at::Tensor>>& inputs,
    const Group& group,
    const Reduction& reduction,
    bool async,
    int64_t timeout) {
  const at::AutoDispatchBelowADInplaceOrView below;
  const Scaled scaled(group, reduction);
  auto into = outputs.vec();
  auto shares = inputs;
  for (auto& list : shares) {
    for (at::Tensor& tensor : list)
      tensor = scaled.share(tensor);
  }
  auto work = group->getBackend(c10::DeviceType::CUDA)
                  ->reduce_scatter(
                      into, shares, scaled.options<c10d::ReduceScatterOptions>(async, timeout));
  return {std::move(into), std::move(work)};
}

std::tuple<at::Tensor, WorkPtr> reduce_scatter_base(at::Tensor& output,
                                                    at::Tensor& input,
                                                    const Group& group,
                                                    const Reduction& reduction,
                                                    bool async,
                                                    int64_t timeout) {
  const at::AutoDispatchBelowADInplaceOrView below;
  const Scaled scaled(group, reduction);
  at::Tensor share = scaled.share(input);
  auto work = group->getBackend(c10::DeviceType::CUDA)
                  ->_reduce_scatter_base(
                      output, share, scaled.options<c10d::ReduceScatterOptions>(async, timeout));
  return {output, std::move(work)};
}

/// Several pieces of work as one.
class Together final : public c10d::Work {
 public:
  explicit Together(std::vector<WorkPtr> parts) : parts_(std::move(parts)) {}

  bool isCompleted() override {
    return std::all_of(
        parts_.begin(), parts_.end(), [](const WorkPtr& part) { return part->isCompleted(); });
  }

  [[nodiscard]] bool isSuccess() const override {
    return std::all_of(
        parts_.begin(), parts_.end(), [](const WorkPtr& part) { return part->isSuccess(); });
  }

  [[nodiscard]] std::exception_ptr exception() const override {
    for (const WorkPtr& part : parts_) {
      if (auto error = part->exception()) return error;
    }
    return nullptr;
  }

  bool wait(std::chrono::milliseconds timeout) override {
    bool done = true;
    for (const WorkPtr& part : parts_)
      done = part->wait(timeout) && done;
    return done;
  }

  void synchronize() override {
    for (const WorkPtr& part : parts_)
      part->synchronize();
  }

  void abort() override {
    for (const WorkPtr& part : parts_)
      part->abort();
  }

 private:
  std::vector<WorkPtr> parts_;
};

WorkPtr allreduce_coalesced(at::TensorList tensors,
                            const Group& group,
                            const Reduction& reduction,
                            bool async,
                            int64_t timeout) {
  std::vector<WorkPtr> parts;
  for (const at::Tensor& tensor : tensors) {
    parts.push_back(std::get<1>(allreduce(tensor, group, reduction, std::nullopt, async, timeout)));
  }
  return c10::make_intrusive<Together>(std::move(parts));
}

WorkPtr reduce_scatter_coalesced(at::TensorList outputs,
                                 at::TensorList inputs,
                                 const Group& group,
                                 const Reduction& reduction,
                                 bool async,
                                 int64_t timeout) {
  TORCH_CHECK(outputs.size() == inputs.size(), "as many outputs as inputs are needed");
  std::vector<WorkPtr> parts;
  for (size_t i = 0; i < outputs.size(); ++i) {
    at::Tensor output = outputs[i];
    at::Tensor input = inputs[i];
    parts.push_back(
        std::get<1>(reduce_scatter_base(output, input, group, reduction, async, timeout)));
  }
  return c10::make_intrusive<Together>(std::move(parts));
}

WorkPtr allgather_coalesced(at::TensorList outputs,
                            at::TensorList inputs,
                            const Group& group,
                            bool async) {
  TORCH_CHECK(outputs.size() == inputs.size(), "as many outputs as inputs are needed");
  const at::AutoDispatchBelowADInplaceOrView below;
  c10d::AllgatherOptions options;
  options.asyncOp = async;
  std::vector<WorkPtr> parts;
  for (size_t i = 0; i < outputs.size(); ++i) {
    at::Tensor output = outputs[i];
    at::Tensor input = inputs[i];
    parts.push_back(
        group->getBackend(c10::DeviceType::CUDA)->_allgather_base(output, input, options));
  }
  return c10::make_intrusive<Together>(std::move(parts));
}

}  // namespace

std::optional<c10::KernelFunction> collective_kernel(std::string_view name) {
  using c10::KernelFunction;
  if (name == "c10d::allreduce_") {
    return KernelFunction::makeFromUnboxedRuntimeFunction(&allreduce);
  }
  if (name == "c10d::reduce_scatter_") {
    return KernelFunction::makeFromUnboxedRuntimeFunction(&reduce_scatter);
  }
  if (name == "c10d::_reduce_scatter_base_") {
    return KernelFunction::makeFromUnboxedRuntimeFunction(&reduce_scatter_base);
  }
  if (name == "c10d::allreduce_coalesced_") {
    return KernelFunction::makeFromUnboxedRuntimeFunction(&allreduce_coalesced);
  }
  if (name == "c10d::reduce_scatter_tensor_coalesced_") {
    return KernelFunction::makeFromUnboxedRuntimeFunction(&reduce_scatter_coalesced);
  }
  if (name == "c10d::allgather_into_tensor_coalesced_") {
    return KernelFunction::makeFromUnboxedRuntimeFunction(&allgather_coalesced);
  }
  return std::nullopt;
}

}  // namespace spillway::operators
