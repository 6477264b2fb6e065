// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "torch_glue/compat.h"
#include "torch_glue/shards/file_traffic.h"
#include "torch_glue/shards/host_memory.h"

#include <atomic>
#include <memory>

namespace spillway {

/// Where in a file a parameter's gradient lies, for one gradient at a time.
class GradientPlace : public std::enable_shared_from_this<GradientPlace> {
 public:
  GradientPlace(std::shared_ptr<HostFile> file, Bytes size)
      : file_(std::move(file)), at_(file_->take(size)), size_(size) {}

  /// The place, until the last tensor in it goes; null where it is taken or too small.
  std::shared_ptr<HostMemory> take(Bytes size);

 private:
  const std::shared_ptr<HostFile> file_;
  std::byte* const at_;
  const Bytes size_;
  std::atomic<bool> taken_{false};
};

/// Takes the gradients of parameters that live on the host there, as they come up in a backward
/// pass. To autograd the parameter stays on the host: its own accumulator is where the gradient
/// ends, with all hooks of the parameter, and the copy is a step of the graph before it. What
/// several copies bring to one parameter is added in the order in which it left.
///
/// Threads: safe. Ownership: graphs own it together with its maker.
class HostGradients : public std::enable_shared_from_this<HostGradients> {
 public:
  /// To pinned memory; by way of `traffic` where there is one.
  HostGradients(DeviceRuntime& device, std::shared_ptr<FileTraffic> traffic)
      : device_(device), traffic_(std::move(traffic)) {}

  /// What takes the place of `parameter`'s accumulator while its values are on the device, as they
  /// are now: what comes here leaves, and goes on to `accumulator` when it has arrived. The device
  /// and the thread that serves it do not wait for that; the thread that runs the graph's steps on
  /// the host does. Gradients with a graph of their own, and those that are no plain strided
  /// tensors, leave at once. With a file they go to `place`, or where that is null or taken to
  /// ordinary memory.
  compat::NodePtr way_to(const compat::NodePtr& accumulator,
                         const at::Tensor& parameter,
                         std::shared_ptr<GradientPlace> place);

  /// Bytes that have left, since creation.
  [[nodiscard]] Bytes moved() const { return Bytes{moved_.load()}; }

 private:
  class Leave;
  class Arrive;

  /// A gradient on its way to the host, where it lies once `copied` has passed and `kept` is there.
  struct Leaving {
    at::Tensor on_host;
    driver::Fence copied;
    FileTraffic::Outcome kept;  // only with a file
  };

  Leaving leave(const at::Tensor& gradient, GradientPlace* place);

  DeviceRuntime& device_;
  const std::shared_ptr<FileTraffic> traffic_;
  std::atomic<std::uint64_t> moved_{0};
  std::atomic<std::uint64_t> left_{0};
};

/// How the gradients of one parameter come to the host, over all runs of the parts that have it.
/// Floating-point sums depend on their order, and autograd adds up what the uses of a parameter
/// give in the order in which their nodes run. A run with one use has its gradient copied by itself
/// and added on the host. Where a run has more of them, the runs after it give theirs to the same
/// node, in whose input autograd adds them up on the device: the sum stays there from the first use
/// of a backward pass to the last one, and is copied once.
///
/// Threads: confined, as the part is.
class GradientWay {
 public:
  /// `place`: where gradients lie in a file; null without one.
  explicit GradientWay(std::shared_ptr<GradientPlace> place) : place_(std::move(place)) {}

  /// A run begins, with `parameter` on the device: what takes the place of `accumulator` in it.
  compat::NodePtr begin(HostGradients& gradients,
                        const compat::NodePtr& accumulator,
                        const at::Tensor& parameter);
  /// The run is over, and what it has computed holds `node` once for each use.
  void end(const compat::NodePtr& node);

 private:
  const std::shared_ptr<GradientPlace> place_;
  compat::WeakNodePtr shared_{compat::NodePtr()};  // of runs to come
};

}  // namespace spillway
