// SPDX-License-Identifier: Apache-2.0
#include "torch_glue/checkpoint/frame.h"

#include <spillway/torch/checkpoint.h>

#include <utility>

namespace spillway {

struct CheckpointedCall::State {
  State(const std::vector<at::Tensor>& inputs,
        Recompute recompute,
        const CheckpointOptions& options)
      : frame(std::make_shared<CheckpointFrame>(inputs, std::move(recompute), options)),
        region(enter_region(frame)) {}

  const std::shared_ptr<CheckpointFrame> frame;
  const EnteredRegion region;
};

CheckpointedCall::CheckpointedCall(const std::vector<at::Tensor>& inputs,
                                   Recompute recompute,
                                   const CheckpointOptions& options)
    : state_(std::make_unique<State>(inputs, std::move(recompute), options)) {}

CheckpointedCall::~CheckpointedCall() = default;

void CheckpointedCall::done() {
  state_->frame->called();
}

}  // namespace spillway
