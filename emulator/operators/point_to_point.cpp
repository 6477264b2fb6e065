// SPDX-License-Identifier: Apache-2.0
#include "emulator/operators/point_to_point.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/Event.h>
#include <c10/cuda/CUDAStream.h>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

namespace spillway::operators {
namespace {

using Group = c10::intrusive_ptr<c10d::ProcessGroup>;
using WorkPtr = c10::intrusive_ptr<c10d::Work>;

/// The strides too: gloo refuses tensors with gaps, and must see them.
at::Tensor page_locked_like(const at::Tensor& tensor) {
  return at::empty_strided(
      tensor.sizes(), tensor.strides(), tensor.options().device(at::kCPU).pinned_memory(true));
}

/// A receive into device memory. Its bytes are on the host once `received` is done, and are copied
/// to the device at the first wait.
///
/// Threads: any; the first one that finds the bytes there copies them.
class Receive final : public c10d::Work {
 public:
  Receive(WorkPtr received, at::Tensor host, at::Tensor to)
      : received_(std::move(received)), host_(std::move(host)), to_(std::move(to)) {
    called_.record(c10::cuda::getCurrentCUDAStream(to_.device().index()));
  }

  bool isCompleted() override {
    if (!received_->isCompleted()) return false;
    if (received_->isSuccess()) arrive();
    return true;
  }

  [[nodiscard]] bool isSuccess() const override { return received_->isSuccess(); }

  [[nodiscard]] std::exception_ptr exception() const override { return received_->exception(); }

  [[nodiscard]] int sourceRank() const override { return received_->sourceRank(); }

  std::vector<at::Tensor> result() override { return {to_}; }

  bool wait(std::chrono::milliseconds timeout) override {
    if (!received_->wait(timeout)) return false;
    arrive();
    return true;
  }

  void synchronize() override { wait(kNoTimeout); }

  void blockCurrentStream() override { wait(kNoTimeout); }

  void abort() override { received_->abort(); }

 private:
  /// Every waiting stream is ordered after the copy, which the first of them makes.
  void arrive() {
    const std::lock_guard lock(mutex_);
    const c10::DeviceGuard guard(to_.device());
    const auto stream = c10::cuda::getCurrentCUDAStream();
    if (host_.defined()) {
      const at::AutoDispatchBelowADInplaceOrView below;
      called_.block(stream);
      to_.copy_(host_, /*non_blocking=*/true);
      host_.reset();
      arrived_.record(stream);
    }
    arrived_.block(stream);
  }

  WorkPtr received_;
  at::Tensor host_;  // undefined once its bytes are being copied
  at::Tensor to_;
  c10::Event called_{c10::DeviceType::CUDA};
  c10::Event arrived_{c10::DeviceType::CUDA};
};

/// Gloo, if it must move one CUDA tensor; null if another backend is in charge.
c10::intrusive_ptr<c10d::Backend> gloo(const Group& group, at::TensorList tensors) {
  auto backend = group->getBackend(c10::DeviceType::CUDA);
  return backend->getBackendName() == "gloo" && tensors.size() == 1 ? backend : nullptr;
}

template <class Call>
WorkPtr receive(const Group& group, at::TensorList tensors, Call&& call) {
  const auto backend = gloo(group, tensors);
  if (backend == nullptr) {
    auto as_they_are = tensors.vec();
    return call(*group->getBackend(c10::DeviceType::CUDA), as_they_are);
  }
  const c10::DeviceGuard guard(tensors[0].device());
  std::vector<at::Tensor> host{page_locked_like(tensors[0])};
  return c10::make_intrusive<Receive>(call(*backend, host), host[0], tensors[0]);
}

WorkPtr send(at::TensorList tensors, const Group& group, int64_t to, int64_t tag) {
  const auto rank = static_cast<int>(to);
  const auto backend = gloo(group, tensors);
  if (backend == nullptr) {
    auto as_they_are = tensors.vec();
    return group->getBackend(c10::DeviceType::CUDA)->send(as_they_are, rank, static_cast<int>(tag));
  }
  const c10::DeviceGuard guard(tensors[0].device());
  const at::AutoDispatchBelowADInplaceOrView below;
  std::vector<at::Tensor> host{page_locked_like(tensors[0])};
  host[0].copy_(tensors[0], /*non_blocking=*/true);
  c10::cuda::getCurrentCUDAStream().synchronize();
  return backend->send(host, rank, static_cast<int>(tag));
}

WorkPtr recv(at::TensorList tensors, const Group& group, int64_t from, int64_t tag) {
  return receive(group, tensors, [&](c10d::Backend& backend, std::vector<at::Tensor>& into) {
    return backend.recv(into, static_cast<int>(from), static_cast<int>(tag));
  });
}

WorkPtr recv_any_source(at::TensorList tensors, const Group& group, int64_t tag) {
  return receive(group, tensors, [&](c10d::Backend& backend, std::vector<at::Tensor>& into) {
    return backend.recvAnysource(into, static_cast<int>(tag));
  });
}

}  // namespace

std::optional<c10::KernelFunction> point_to_point_kernel(std::string_view name) {
  if (name == "c10d::send") return c10::KernelFunction::makeFromUnboxedRuntimeFunction(&send);
  if (name == "c10d::recv_") return c10::KernelFunction::makeFromUnboxedRuntimeFunction(&recv);
  if (name == "c10d::recv_any_source_") {
    return c10::KernelFunction::makeFromUnboxedRuntimeFunction(&recv_any_source);
  }
  return std::nullopt;
}

}  // namespace spillway::operators
