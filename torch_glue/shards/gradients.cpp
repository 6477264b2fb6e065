// SPDX-License-Identifier: Apache-2.0
#include "torch_glue/shards/gradients.h"

#include "torch_glue/base/check.h"
#include "torch_glue/base/streams.h"
#include "torch_glue/saved_storage/pending_sources.h"

#include <ATen/Context.h>
#include <ATen/TensorSubclassLikeUtils.h>
#include <ATen/core/grad_mode.h>
#include <c10/cuda/CUDAStream.h>
#include <torch/csrc/autograd/anomaly_mode.h>
#include <torch/csrc/autograd/function.h>

#include <limits>

namespace spillway {
namespace {

using torch::autograd::variable_list;

/// As an accumulator's: nodes that wait for nothing run first.
constexpr auto kFirst = std::numeric_limits<std::uint64_t>::max();

at::Tensor dense(const at::Tensor& gradient) {
  const at::Tensor plain = gradient.resolve_conj().resolve_neg();
  return plain.is_non_overlapping_and_dense() ? plain : plain.contiguous();
}

/// Whether its bytes may be copied without an operator, and read later.
bool may_leave_by_copy(const at::Tensor& gradient) {
  return !at::GradMode::is_enabled() && !torch::autograd::AnomalyMode::is_enabled() &&
         gradient.layout() == at::kStrided && !at::isTensorSubclassLike(gradient) &&
         gradient.nbytes() > 0;
}

std::shared_ptr<HostMemory> ordinary(Bytes size) {
  const auto data = std::make_shared<c10::DataPtr>(at::getCPUAllocator()->allocate(size.count()));
  return std::make_shared<HostMemory>(static_cast<std::byte*>(data->get()), data);
}

}  // namespace

/// Runs on the host's thread, which may block.
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
    driver::FenceSet copies;
    std::vector<FileTraffic::Outcome> kept;
    {
      const Lock lock(mutex_);
      --queued_;
      copies = copies_;
      kept.swap(kept_);
    }
    check(copies.wait_sync());
    for (const auto& outcome : kept)
      check(outcome.get().status());
    return std::move(grads);
  }

  /// It is about to be queued for the host's thread, as number `number` of all: a queue runs the
  /// highest number first. One that waits in another pass's queue keeps its number.
  void queued(std::uint64_t number) {
    const Lock lock(mutex_);
    if (queued_++ == 0) set_sequence_nr(kFirst - number);
  }

  void expect(const Leaving& leaving) {
    const Lock lock(mutex_);
    if (leaving.kept.valid()) {
      kept_.push_back(leaving.kept);
    } else {
      copies_.add(leaving.copied);
    }
  }

  [[nodiscard]] std::string name() const override { return "SpillwayGradientArrives"; }

 private:
  Mutex mutex_;
  int queued_ SPILLWAY_GUARDED_BY(mutex_) = 0;
  driver::FenceSet copies_ SPILLWAY_GUARDED_BY(mutex_);
  std::vector<FileTraffic::Outcome> kept_ SPILLWAY_GUARDED_BY(mutex_);
};

class HostGradients::Leave final : public torch::autograd::Node {
 public:
  Leave(std::shared_ptr<HostGradients> gradients,
        compat::NodeOf<Arrive> arrive,
        const at::Tensor& on_device,
        std::shared_ptr<GradientRange> range)
      : Node(kFirst, {torch::autograd::Edge(arrive, 0)}),
        gradients_(std::move(gradients)),
        arrive_(std::move(arrive)),
        range_(std::move(range)) {
    add_input_metadata(on_device);
  }

  variable_list apply(variable_list&& grads) override {
    at::Tensor gradient = std::move(grads[0]);
    arrive_->queued(++gradients_->left_);
    if (!gradient.defined() || !gradient.is_cuda()) return {std::move(gradient)};
    if (!may_leave_by_copy(gradient)) {
      gradients_->offloaded_ += gradient.is_sparse()
                                    ? gradient._values().nbytes() + gradient._indices().nbytes()
                                    : gradient.nbytes();
      return {gradient.to(at::kCPU)};
    }
    Leaving leaving = gradients_->leave(gradient, range_.get());
    arrive_->expect(leaving);
    return {std::move(leaving.on_host)};
  }

  [[nodiscard]] std::string name() const override { return "SpillwayGradientLeaves"; }

 private:
  const std::shared_ptr<HostGradients> gradients_;
  const compat::NodeOf<Arrive> arrive_;
  const std::shared_ptr<GradientRange> range_;
};

std::shared_ptr<HostMemory> GradientRange::take(Bytes size) {
  if (size > size_ || taken_.exchange(true)) return nullptr;
  const std::shared_ptr<const void> until(
      at_, [range = shared_from_this()](const void*) { range->taken_ = false; });
  return std::make_shared<HostMemory>(at_, until);
}

compat::NodePtr HostGradients::way_to(const compat::NodePtr& accumulator,
                                      const at::Tensor& parameter,
                                      std::shared_ptr<GradientRange> range) {
  auto arrive = compat::make_node<Arrive>(accumulator);
  return compat::make_node<Leave>(
      shared_from_this(), std::move(arrive), parameter, std::move(range));
}

compat::NodePtr GradientWay::begin(HostGradients& gradients,
                                   const compat::NodePtr& accumulator,
                                   const at::Tensor& parameter) {
  if (compat::NodePtr shared = shared_.lock()) return shared;
  return gradients.way_to(accumulator, parameter, range_);
}

void GradientWay::end(const compat::NodePtr& node) {
  const bool used_more_than_once = node.use_count() > 2;  // the caller references it too
  if (used_more_than_once) shared_ = compat::WeakNodePtr(node);
}

HostGradients::Leaving HostGradients::leave(const at::Tensor& gradient, GradientRange* range) {
  const at::Tensor source = dense(gradient);
  const Bytes size{source.nbytes()};
  const driver::DevicePtr at(source.mutable_data_ptr());
  const driver::Stream producer = stream_of(current_stream(device_.device().id));
  Leaving leaving;
  std::shared_ptr<HostMemory> memory;
  if (traffic_) {
    if (range != nullptr) memory = range->take(size);
    if (memory == nullptr) memory = ordinary(size);
    leaving.kept = traffic_->keep(at, producer, memory, Bytes{}, size, leaving.copied);
  } else {
    memory = HostMemory::of(device_, size);
    leaving.copied = memory->write(device_.copies(), at, Bytes{}, size, producer);
  }
  // Earlier gradients may have been copied by now.
  PendingSources::instance().poll();
  // Autograd adds to a gradient in place once it has the only reference.
  const std::size_t ours = source.is_same(gradient) ? 2 : 1;
  const bool others_have_it = source.use_count() > ours || source.storage().use_count() > 1;
  if (others_have_it || !device_.heap().add_fence(at, leaving.copied)) {
    PendingSources::instance().hold(source.storage(), leaving.copied);
  }
  offloaded_ += size.count();
  leaving.on_host = memory->tensor(source, Bytes{});
  return leaving;
}

}  // namespace spillway
