// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "emulator/emulator.h"
#include "emulator/operators/aliasing.h"
#include "emulator/operators/kernel.h"

#include <vector>

namespace spillway::operators {

/// One operator call as a node of a graph: the call, its bytes, and the location of its results.
///
/// Ownership: owns no device memory, like a kernel in a graph; its tensors are views of addresses.
/// CPU tensors are copied, because a graph keeps the values of its kernels' parameters.
class CapturedCall {
 public:
  /// Requires: called below autograd. Errors: raises if an argument is not a strided tensor.
  CapturedCall(const EmulatedKernel& kernel,
               const c10::OperatorHandle& op,
               c10::ArrayRef<c10::IValue> arguments,
               std::vector<ResultMemory> results,
               Draws::Record draws);

  /// Appends the call to the capture of `stream`; the graph owns it from then on.
  ///
  /// Errors: raises PyTorch's CUDA error if the capture is invalid.
  static void add(std::unique_ptr<CapturedCall> call,
                  CUstream stream,
                  const std::vector<spillway_emulator_view>& accesses);

 private:
  /// Computes on the present bytes. An error is sticky on the device, like a failed kernel's.
  void run() noexcept;

  const EmulatedKernel& kernel_;
  c10::OperatorHandle op_;
  c10::Stack arguments_;
  std::vector<ResultMemory> results_;
  Draws::Record draws_;
};

}  // namespace spillway::operators
