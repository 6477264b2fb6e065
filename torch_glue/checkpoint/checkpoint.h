// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "torch_glue/checkpoint/frame.h"

#include <ATen/core/grad_mode.h>

#include <utility>
#include <vector>

namespace spillway {

/// The first call of a checkpointed function, from its begin to its end on one thread.
class CheckpointedCall {
 public:
  CheckpointedCall(const std::vector<at::Tensor>& inputs,
                   CheckpointFrame::Recompute recompute,
                   const CheckpointOptions& options);
  /// Where done() was not called, the function has thrown.
  ~CheckpointedCall() = default;
  CheckpointedCall(const CheckpointedCall&) = delete;
  CheckpointedCall& operator=(const CheckpointedCall&) = delete;

  void done();

 private:
  const std::shared_ptr<CheckpointFrame> frame_;
  const EnteredRegion region_;
};

/// For C++ users: `function(inputs)`, whose saved tensors are forgotten and computed again in the
/// backward pass. The inputs are kept, on the host where the options say so. `function` must be
/// copyable, and do the same when it is called again. Without gradients it is simply called.
template <typename Function>
auto checkpoint(Function function,
                const std::vector<at::Tensor>& inputs,
                const CheckpointOptions& options = {}) {
  if (!at::GradMode::is_enabled()) return function(inputs);
  CheckpointedCall call(
      inputs,
      [function](const std::vector<at::Tensor>& again) { static_cast<void>(function(again)); },
      options);
  auto result = function(inputs);
  call.done();
  return result;
}

}  // namespace spillway
