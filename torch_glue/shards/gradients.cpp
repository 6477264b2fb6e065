// SPDX-License-Identifier: Apache-2.0
#include "torch_glue/shards/gradients.h"

#include "allocator/transfer/free_ranges.h"
#include "torch_glue/check.h"
#include "torch_glue/saved_tensors/pending_sources.h"
#include "torch_glue/streams.h"

#include <ATen/TensorSubclassLikeUtils.h>
#include <ATen/core/grad_mode.h>
#include <c10/cuda/CUDAStream.h>
#include <torch/csrc/autograd/anomaly_mode.h>
#include <torch/csrc/autograd/function.h>

#include <limits>

namespace spillway {
namespace {

using torch::autograd::variable_list;

/// As an accumulator's: what waits for nothing runs first.
constexpr auto kFirst = std::numeric_limits<std::uint64_t>::max();

at::Tensor dense(const at::Tensor& gradient) {
  const at::Tensor plain = gradient.resolve_conj().resolve_neg();
  return plain.is_non_overlapping_and_dense() ? plain : plain.contiguous();
}

/// Whether its bytes may be copied without the operators seeing it, and looked at later.
bool may_leave_by_copy(const at::Tensor& gradient) {
  return !at::GradMode::is_enabled() && !torch::autograd::AnomalyMode::is_enabled() &&
         gradient.layout() == at::kStrided && !at::isTensorSubclassLike(gradient) &&
         gradient.nbytes() > 0;
}

}  // namespace

/// Runs on the host's thread, where it may wait.
class HostGradients::Arrive final : public torch::autograd::Node {
 public:
  explicit Arrive(const compat::NodePtr& accumulator)
      : Node(kFirst, {torch::autograd::Edge(accumulator, 0)}) {
    const auto& like = accumulator->input_metadata(0);
    add_input_metadata(like.options(),
                       like.shape_as_dim_vector(),
                       like.is_tensor_subclass(),
                       like.is_nested_tensor(),
                       like.grad_dtype());
  }

  variable_list apply(variable_list&& grads) override {
    std::vector<driver::Fence> copies;
    {
      const Lock lock(mutex_);
      copies = copies_;
    }
    for (const driver::Fence copied : copies)
      check(driver::Timeline::wait_sync(copied));
    return std::move(grads);
  }

  void expect(driver::Fence copied) {
    const Lock lock(mutex_);
    add_fence(copies_, copied);
  }

  [[nodiscard]] std::string name() const override { return "SpillwayGradientArrives"; }

 private:
  Mutex mutex_;
  std::vector<driver::Fence> copies_ SPILLWAY_GUARDED_BY(mutex_);  // the latest of each timeline
};

class HostGradients::Leave final : public torch::autograd::Node {
 public:
  Leave(std::shared_ptr<HostGradients> gradients,
        std::shared_ptr<Arrive> arrive,
        const at::Tensor& on_device)
      : Node(kFirst, {torch::autograd::Edge(arrive, 0)}),
        gradients_(std::move(gradients)),
        arrive_(std::move(arrive)) {
    add_input_metadata(on_device);
  }

  variable_list apply(variable_list&& grads) override {
    at::Tensor gradient = std::move(grads[0]);
    if (!gradient.defined() || !gradient.is_cuda()) return {std::move(gradient)};
    if (!may_leave_by_copy(gradient)) {
      gradients_->moved_ += gradient.is_sparse()
                                ? gradient._values().nbytes() + gradient._indices().nbytes()
                                : gradient.nbytes();
      return {gradient.to(at::kCPU)};
    }
    driver::Fence copied;
    at::Tensor on_host = gradients_->leave(gradient, copied);
    arrive_->expect(copied);
    return {std::move(on_host)};
  }

  [[nodiscard]] std::string name() const override { return "SpillwayGradientLeaves"; }

 private:
  const std::shared_ptr<HostGradients> gradients_;
  const std::shared_ptr<Arrive> arrive_;
};

std::shared_ptr<torch::autograd::Node> HostGradients::way_to(const compat::NodePtr& accumulator,
                                                             const at::Tensor& parameter) {
  const std::shared_ptr<Arrive> arrive(new Arrive(accumulator), torch::autograd::deleteNode);
  return {new Leave(shared_from_this(), arrive, parameter), torch::autograd::deleteNode};
}

at::Tensor HostGradients::leave(const at::Tensor& gradient, driver::Fence& copied) {
  const at::Tensor source = dense(gradient);
  const Bytes size{source.nbytes()};
  const auto memory = HostMemory::of(device_, size);
  const driver::DevicePtr at(source.mutable_data_ptr());
  HostSlot home = memory->part(Bytes{}, size);
  copied =
      checked(device_.copies().to_host(at, home, stream_of(current_stream(device_.device().id))));
  memory->note_copy(copied);
  // Autograd adds to a gradient in place as soon as it is the only one that has it.
  const std::size_t ours = source.is_same(gradient) ? 2 : 1;
  const bool others_have_it = source.use_count() > ours || source.storage().use_count() > 1;
  if (others_have_it || !device_.heap().add_fence(at, copied)) {
    PendingSources::instance().hold(source.storage(), copied);
  }
  moved_ += size.count();
  return memory->tensor(source, Bytes{});
}

}  // namespace spillway
