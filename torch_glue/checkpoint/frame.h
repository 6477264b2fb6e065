// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "allocator/base/mutex.h"
#include "torch_glue/checkpoint/forward_state.h"
#include "torch_glue/checkpoint/parameters_used.h"
#include "torch_glue/saved_tensors/region_stack.h"
#include "torch_glue/saved_tensors/wrapped.h"

#include <torch/csrc/autograd/saved_variable.h>

#include <spillway/torch/checkpoint.h>

#include <cstddef>
#include <functional>
#include <memory>
#include <ostream>
#include <utility>
#include <vector>

namespace spillway {

/// One checkpointed call. It keeps its inputs and drops its saved tensors. When the backward pass
/// first uses a saved tensor, the call runs again and all its saved tensors are kept until that
/// pass has used them.
///
/// The inputs are saved as tensors of autograd, so that hooks and regions around the call receive
/// them.
///
/// Threads: safe. Ownership: shared by the handles in the graph; it ends with the last one.
class CheckpointFrame : public SavingRules, public std::enable_shared_from_this<CheckpointFrame> {
 public:
  using Recompute = CheckpointedCall::Recompute;

  CheckpointFrame(const std::vector<at::Tensor>& inputs,
                  Recompute recompute,
                  const CheckpointOptions& options);

  std::unique_ptr<torch::autograd::SavedVariableHooks> hooks() override;

  /// Marks the end of the first call.
  void called() {
    state_.first_call_ended();
    used_.ended();
  }

  /// The saved tensor with this number, on the device. Each is available once per backward pass;
  /// for a second use the call runs again.
  /// Errors: c10::Error if the call saves other tensors than before, or tensors that depend on
  /// other parameters; errors of the call itself.
  at::Tensor value(std::size_t number);

  /// Properties of a tensor saved by the first call, for comparison.
  struct Shape {
    std::vector<std::int64_t> sizes;
    c10::ScalarType dtype;
    c10::Device device;

    static Shape of(const at::Tensor& tensor) {
      const auto sizes = sizes_or_none(tensor);
      return {{sizes.begin(), sizes.end()}, tensor.scalar_type(), tensor.device()};
    }

    bool operator==(const Shape&) const = default;
    friend std::ostream& operator<<(std::ostream& out, const Shape& shape);
  };

 private:
  friend class ForgottenTensor;

  class Collector;

  std::shared_ptr<Collector> run_again();
  std::vector<at::Tensor> call_again();
  void forget_at_the_end_of_the_pass();

  const CheckpointOptions options_;
  const int called_in_pass_;  // a backward pass within the call does not count
  const Recompute recompute_;
  ForwardState state_;
  std::vector<torch::autograd::SavedVariable> inputs_;
  std::vector<Shape> saved_;  // complete after the call has ended
  ParametersUsed used_;       // likewise

  Mutex mutex_;
  int pass_ SPILLWAY_GUARDED_BY(mutex_) = -1;  // the pass that the tensors belong to
  std::vector<at::Tensor> values_ SPILLWAY_GUARDED_BY(mutex_);
};

}  // namespace spillway
