// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "torch_glue/base/compat.h"
#include "torch_glue/shards/file_traffic.h"
#include "torch_glue/shards/host_memory.h"

#include <atomic>
#include <memory>

namespace spillway {

/// A file range for the gradient of a parameter, for one gradient at a time.
class GradientRange : public std::enable_shared_from_this<GradientRange> {
 public:
  GradientRange(std::shared_ptr<HostFile> file, Bytes size)
      : file_(std::move(file)), at_(file_->take(size)), size_(size) {}

  /// The range, until its last tensor is freed; null if it is in use or too small.
  std::shared_ptr<HostMemory> take(Bytes size);

 private:
  const std::shared_ptr<HostFile> file_;
  std::byte* const at_;
  const Bytes size_;
  std::atomic<bool> taken_{false};
};

/// Copies gradients to the host as a backward pass produces them, for parameters that are stored
/// there. For autograd the parameter stays on the host: its own accumulator receives the gradient,
/// with all hooks of the parameter. The copy is a graph node before it. Several copies for one
/// parameter are added in the order in which they were offloaded.
///
/// Threads: safe. Ownership: shared by graphs and its creator.
class HostGradients : public std::enable_shared_from_this<HostGradients> {
 public:
  /// Copies to pinned memory, or through `traffic` if it is not null.
  HostGradients(DeviceRuntime& device, std::shared_ptr<FileTraffic> traffic)
      : device_(device), traffic_(std::move(traffic)) {}

  /// The node that replaces `parameter`'s accumulator while its values are on the device. Gradients
  /// that reach it are copied to the host, then passed to `accumulator`. The device and its
  /// autograd thread do not wait for that; the thread that runs the graph's host nodes does.
  /// Gradients with a graph of their own, and those that are not plain strided tensors, are copied
  /// at once. With a file they go to `range`. If that is null or in use, they go to pageable
  /// memory.
  compat::NodePtr way_to(const compat::NodePtr& accumulator,
                         const at::Tensor& parameter,
                         std::shared_ptr<GradientRange> range);

  /// Bytes copied to the host since creation.
  [[nodiscard]] Bytes offloaded() const { return Bytes{offloaded_.load()}; }

 private:
  class Leave;
  class Arrive;

  /// A gradient being copied to the host; complete when `copied` has passed and `kept` is ready.
  struct Leaving {
    at::Tensor on_host;
    driver::Fence copied;
    FileTraffic::Outcome kept;  // only with a file
  };

  Leaving leave(const at::Tensor& gradient, GradientRange* range);

  DeviceRuntime& device_;
  const std::shared_ptr<FileTraffic> traffic_;
  std::atomic<std::uint64_t> offloaded_{0};
  std::atomic<std::uint64_t> left_{0};
};

/// Routes the gradients of one parameter to the host, over all runs of the parts that contain it.
/// Floating-point sums depend on their order; autograd adds the gradients of a parameter's uses in
/// the order in which their nodes run. If a run has one use, its gradient is copied separately and
/// added on the host. If a run has several uses, later runs share the node, at whose input autograd
/// adds them on the device. The sum stays there from the first use of a backward pass to the last,
/// and is copied once.
///
/// Threads: confined, as the part is.
class GradientWay {
 public:
  /// `range`: the file range for gradients; null without a file.
  explicit GradientWay(std::shared_ptr<GradientRange> range) : range_(std::move(range)) {}

  /// Begins a run with `parameter` on the device. Returns the node that replaces `accumulator`
  /// during the run.
  compat::NodePtr begin(HostGradients& gradients,
                        const compat::NodePtr& accumulator,
                        const at::Tensor& parameter);
  /// Ends the run; its graph references `node` once per use.
  void end(const compat::NodePtr& node);

 private:
  const std::shared_ptr<GradientRange> range_;
  compat::WeakNodePtr shared_{compat::NodePtr()};  // of later runs
};

}  // namespace spillway
