// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>

#include <spillway/torch/api.h>

#include <functional>
#include <memory>
#include <vector>

namespace spillway {

struct CheckpointOptions {
  bool offload_to_cpu = false;     // the inputs wait in pinned host memory
  bool preserve_rng_state = true;  // the recomputation draws the same random numbers
  /// Whether devices may have drawn some before. Where none has, one that the call uses begins with
  /// what its seed gives: PyTorch sets seeds late, when it is first asked for a device.
  bool devices_drew = true;
};

/// The first call of a checkpointed function, from its begin to its end on one thread.
class SPILLWAY_TORCH_API CheckpointedCall {
 public:
  /// Makes the call again on tensors like its inputs. Its result is not looked at.
  using Recompute = std::function<void(const std::vector<at::Tensor>& inputs)>;

  CheckpointedCall(const std::vector<at::Tensor>& inputs,
                   Recompute recompute,
                   const CheckpointOptions& options);
  /// Where done() was not called, the function has thrown.
  ~CheckpointedCall();
  CheckpointedCall(const CheckpointedCall&) = delete;
  CheckpointedCall& operator=(const CheckpointedCall&) = delete;

  void done();

 private:
  struct State;
  const std::unique_ptr<State> state_;
};

/// For C++ users: `function(inputs)`, whose saved tensors are forgotten and recomputed in the
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
