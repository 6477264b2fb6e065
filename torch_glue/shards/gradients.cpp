// SPDX-License-Identifier: Apache-2.0
#include "torch_glue/shards/gradients.h"

#include "torch_glue/check.h"
#include "torch_glue/saved_tensors/pending_sources.h"
#include "torch_glue/streams.h"

#include <ATen/core/grad_mode.h>
#include <c10/cuda/CUDAStream.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/variable.h>

namespace spillway {

/// Ends the gradient's way on the device: the parameter gets it on the host.
class HostGradients::Hook final : public torch::autograd::FunctionPreHook {
 public:
  // The parameter owns the hook.
  Hook(std::shared_ptr<HostGradients> gradients, const at::Tensor& parameter)
      : gradients_(std::move(gradients)), parameter_(parameter.getIntrusivePtr()) {}

  torch::autograd::variable_list operator()(const torch::autograd::variable_list& grads) override {
    auto parameter = parameter_.lock();
    if (!parameter || !grads[0].defined() || !grads[0].is_cuda()) return grads;
    gradients_->take(at::Tensor(std::move(parameter)), grads[0]);
    return {at::Tensor()};
  }

 private:
  const std::shared_ptr<HostGradients> gradients_;
  const c10::weak_intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl> parameter_;
};

void HostGradients::take_those_of(const at::Tensor& parameter) {
  torch::autograd::impl::add_hook(parameter, std::make_unique<Hook>(shared_from_this(), parameter));
}

Bytes HostGradients::moved() const {
  const Lock lock(mutex_);
  return moved_;
}

void HostGradients::take(const at::Tensor& parameter, const at::Tensor& gradient) {
  const at::NoGradGuard no_grad;
  const at::Tensor dense = (gradient.is_sparse() ? gradient.to_dense() : gradient).contiguous();
  const Bytes size{dense.nbytes()};
  if (size == Bytes{}) return;
  const auto stream = current_stream(device_.device().id);
  const auto memory = HostMemory::of(device_, size);
  const driver::DevicePtr source(dense.mutable_data_ptr());
  HostSlot home = memory->part(Bytes{}, size);
  const driver::Fence copied = checked(device_.copies().to_host(source, home, stream_of(stream)));
  if (!device_.heap().add_fence(source, copied)) {
    PendingSources::instance().hold(dense.storage(), copied);
  }
  memory->note_copy(copied);

  const auto leaving = of_this_pass();
  const Lock lock(mutex_);
  leaving->push_back({parameter, memory->tensor(dense, Bytes{}), copied});
  moved_ += size;
}

std::shared_ptr<HostGradients::OfPass> HostGradients::of_this_pass() {
  const int pass = torch::autograd::get_current_graph_task_id();
  std::shared_ptr<OfPass> leaving;
  {
    const Lock lock(mutex_);
    std::erase_if(passes_, [](const auto& one) { return one.second.expired(); });
    std::weak_ptr<OfPass>& known = passes_[pass];
    leaving = known.lock();
    if (leaving) return leaving;
    leaving = std::make_shared<OfPass>();
    known = leaving;
  }
  torch::autograd::Engine::get_default_engine().queue_callback(
      [self = shared_from_this(), leaving] { self->arrive(*leaving); });
  return leaving;
}

void HostGradients::arrive(const OfPass& leaving) {
  const at::NoGradGuard no_grad;
  at_the_end_();
  for (const Leaving& one : leaving) {
    check(driver::Timeline::wait_sync(one.copied));
    at::Tensor& sum = one.parameter.mutable_grad();
    if (sum.defined()) {
      sum.add_(one.gradient);
    } else {
      sum = one.gradient;
    }
  }
}

}  // namespace spillway
