// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "torch_glue/compat.h"
#include "torch_glue/shards/host_memory.h"

#include <atomic>
#include <memory>

namespace spillway {

/// Takes the gradients of parameters that live on the host there, as they come up in a backward
/// pass. To autograd the parameter stays on the host: its own accumulator is where the gradient
/// ends, with all hooks of the parameter, and the copy is a step of the graph before it.
///
/// Threads: safe. Ownership: graphs own it together with its maker.
class HostGradients : public std::enable_shared_from_this<HostGradients> {
 public:
  explicit HostGradients(DeviceRuntime& device) : device_(device) {}

  /// What takes the place of `parameter`'s accumulator while its values are on the device, as they
  /// are now: what comes here leaves, and goes on to `accumulator` when it has arrived. The device
  /// and the thread that serves it do not wait for that; the thread that runs the graph's steps on
  /// the host does. Gradients with a graph of their own, and those that are no plain strided
  /// tensors, leave at once.
  std::shared_ptr<torch::autograd::Node> way_to(const compat::NodePtr& accumulator,
                                                const at::Tensor& parameter);

  /// Bytes that have left, since creation.
  [[nodiscard]] Bytes moved() const { return Bytes{moved_.load()}; }

 private:
  class Leave;
  class Arrive;

  /// The gradient on the host, where it lies once `copied` has passed.
  at::Tensor leave(const at::Tensor& gradient, driver::Fence& copied);

  DeviceRuntime& device_;
  std::atomic<std::uint64_t> moved_{0};
};

}  // namespace spillway
