// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "torch_glue/shards/host_memory.h"

#include <torch/csrc/autograd/function_hook.h>

#include <functional>
#include <map>
#include <memory>
#include <utility>
#include <vector>

namespace spillway {

/// Takes the gradients of parameters that live on the host as they come up in a backward pass: they
/// leave beside it, and are added up on the host at its end, so that an optimizer finds them there.
///
/// Threads: safe.
class HostGradients : public std::enable_shared_from_this<HostGradients> {
 public:
  /// `at_the_end` is called at the end of each backward pass that has brought some.
  HostGradients(DeviceRuntime& device, std::function<void()> at_the_end)
      : device_(device), at_the_end_(std::move(at_the_end)) {}

  /// From now on for this parameter. Other hooks of the parameter see what came before.
  void take_those_of(const at::Tensor& parameter);

  /// Bytes that have left, since creation.
  [[nodiscard]] Bytes moved() const;

 private:
  class Hook;

  struct Leaving {
    at::Tensor parameter;
    at::Tensor gradient;  // on the host
    driver::Fence copied;
  };

  /// Those of one backward pass. The pass owns it: one that fails loses its gradients.
  using OfPass = std::vector<Leaving>;

  void take(const at::Tensor& parameter, const at::Tensor& gradient);
  /// The running pass's, made where it has none.
  std::shared_ptr<OfPass> of_this_pass();
  /// Blocks the host until they are there.
  void arrive(const OfPass& leaving);

  DeviceRuntime& device_;
  const std::function<void()> at_the_end_;
  mutable Mutex mutex_;
  std::map<int, std::weak_ptr<OfPass>> passes_ SPILLWAY_GUARDED_BY(mutex_);
  Bytes moved_ SPILLWAY_GUARDED_BY(mutex_);
};

}  // namespace spillway
