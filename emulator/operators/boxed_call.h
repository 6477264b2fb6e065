// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

#include <functional>
#include <optional>

namespace spillway::operators {

using BoxedCall =
    std::function<void(const c10::OperatorHandle&, c10::DispatchKeySet, torch::jit::Stack*)>;

/// Calls `kernel`, or else the CUDA kernel that the operator has now. Threads: safe.
inline BoxedCall call_of(const c10::OperatorHandle& op, std::optional<c10::KernelFunction> kernel) {
  const auto calling = [](auto callee) {
    return [callee = std::move(callee)](const auto& called, auto keys, auto* stack) {
      callee.callBoxed(called, keys, stack);
    };
  };
  if (kernel) return calling(std::move(*kernel));
  return calling(op.getComputedKernelForDispatchKey(c10::DispatchKey::CUDA));
}

}  // namespace spillway::operators
