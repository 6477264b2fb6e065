// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "torch_glue/shards/host_memory.h"

#include <torch/csrc/autograd/function_hook.h>

#include <functional>
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

  void take(const at::Tensor& parameter, const at::Tensor& gradient);
  /// Blocks the host until they are there.
  void arrive();

  DeviceRuntime& device_;
  const std::function<void()> at_the_end_;
  mutable Mutex mutex_;
  std::vector<Leaving> leaving_ SPILLWAY_GUARDED_BY(mutex_);
  int pass_ SPILLWAY_GUARDED_BY(mutex_) = -1;  // the backward pass whose gradients are leaving
  Bytes moved_ SPILLWAY_GUARDED_BY(mutex_);
};

}  // namespace spillway
