// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>

#include <spillway/torch/api.h>

#include <functional>
#include <memory>
#include <vector>

namespace spillway {

/// Options of checkpoint().
struct CheckpointOptions {
  bool offload_to_cpu = false;     // keeps the inputs in pinned host memory
  bool preserve_rng_state = true;  // the recomputation draws the same random numbers
  /// Whether the program may have drawn random numbers on devices before. If not, a device that the
  /// call uses starts from its seed: PyTorch applies seeds at the first use of a device.
  bool devices_drew = true;
};

/// The first call of a checkpointed function, from its beginning to its end on one thread. For
/// wrappers that checkpoint() does not cover: construct it, call the function, then call done().
class SPILLWAY_TORCH_API CheckpointedCall {
 public:
  /// Repeats the call on tensors like its inputs. Its result is ignored.
  using Recompute = std::function<void(const std::vector<at::Tensor>& inputs)>;

  CheckpointedCall(const std::vector<at::Tensor>& inputs,
                   Recompute recompute,
                   const CheckpointOptions& options);
  /// Without a call of done(), the function counts as having thrown.
  ~CheckpointedCall();
  CheckpointedCall(const CheckpointedCall&) = delete;
  CheckpointedCall& operator=(const CheckpointedCall&) = delete;

  /// The function has returned.
  void done();

 private:
  struct State;
  const std::unique_ptr<State> state_;
};

/// For C++ users: returns `function(inputs)`, drops its saved tensors, and recomputes them in the
/// backward pass. The inputs are kept, on the host if the options request it. `function` must be
/// copyable and compute the same when it is called again. Without gradients it is called directly.
/// Errors: exceptions of `function`. In the backward pass: c10::Error if the second call saves
/// other tensors than the first one, or if an input was changed in place.
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
