// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "emulator/emulator.h"
#include "emulator/operators/aliasing.h"
#include "emulator/operators/kernel.h"

#include <vector>

namespace spillway::operators {

/// One operator call as a node of a graph: what to run again, on which bytes, and where its results
/// lie.
///
/// Ownership: owns no device memory, as a kernel in a graph does not; its tensors are views of
/// addresses. CPU tensors are copied, because a graph keeps the values of its kernels' parameters.
class CapturedCall {
 public:
  /// Requires: called below autograd. Errors: raises where an argument is not a strided tensor.
  CapturedCall(const EmulatedKernel& kernel,
               const c10::OperatorHandle& op,
               c10::ArrayRef<c10::IValue> arguments,
               std::vector<Place> results,
               Draws::Record draws);

  /// Appends the call to what `stream` captures; the graph owns it from then on.
  ///
  /// Errors: raises PyTorch's CUDA error where the capture takes nothing more.
  static void add(std::unique_ptr<CapturedCall> call,
                  CUstream stream,
                  const std::vector<spillway_emulator_view>& accesses);

 private:
  /// Computes on the bytes of now. An error stays with the device, as a failed kernel's does.
  void run() noexcept;

  const EmulatedKernel& kernel_;
  c10::OperatorHandle op_;
  c10::Stack arguments_;
  std::vector<Place> results_;
  Draws::Record draws_;
};

}  // namespace spillway::operators
