// SPDX-License-Identifier: Apache-2.0
#include "torch_glue/checkpoint/checkpoint.h"

namespace spillway {

CheckpointedCall::CheckpointedCall(const std::vector<at::Tensor>& inputs,
                                   CheckpointFrame::Recompute recompute,
                                   const CheckpointOptions& options)
    : frame_(std::make_shared<CheckpointFrame>(inputs, std::move(recompute), options)),
      region_(enter_region(frame_)) {}

void CheckpointedCall::done() {
  frame_->called();
}

}  // namespace spillway
