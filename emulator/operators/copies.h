// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "emulator/operators/kernel.h"

namespace spillway::operators {

/// The boxed CUDA kernel of aten::copy_. Copies to and from the CPU, and those that a GPU does with
/// one memcpy, are PyTorch's own code (cudaMemcpyAsync, so asynchronous and ordered as on a GPU);
/// the others are emulated.
class CopyKernel final : public c10::OperatorKernel {
 public:
  explicit CopyKernel(const c10::OperatorHandle& op) : emulated_(op) {}

  void operator()(const c10::OperatorHandle& op, c10::DispatchKeySet keys, c10::Stack* stack) const;

 private:
  EmulatedKernel emulated_;
};

/// The boxed CUDA kernel of aten::_foreach_copy_: one aten::copy_ after the other.
class ForeachCopyKernel final : public c10::OperatorKernel {
 public:
  void operator()(const c10::OperatorHandle& op, c10::DispatchKeySet keys, c10::Stack* stack) const;
};

}  // namespace spillway::operators
