// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "emulator/operators/bodies/bodies.h"
#include "emulator/operators/device_check.h"
#include "emulator/operators/scratch.h"
#include "emulator/operators/shapes/shape_rules.h"

#include <ATen/core/dispatch/Dispatcher.h>

namespace spillway::operators {

/// The boxed CUDA kernel of one operator. Runs the operator's CPU kernel, or `body` if there is
/// none, on the same bytes, in stream order, and reports its accesses to the order checker.
///
/// Shape-only: only small results are computed; large ones are allocated and not written.
///
/// Stream: the current one of the arguments' device; waits for it as the operator on a GPU would.
/// Errors: those of the CPU kernel, mixed devices, results that are not strided, out of memory.
class EmulatedKernel final : public c10::OperatorKernel {
 public:
  /// `key` selects the CPU kernel, such as that for sparse tensors.
  explicit EmulatedKernel(const c10::OperatorHandle& op,
                          const NamedBody* body = nullptr,
                          c10::DispatchKey key = c10::DispatchKey::CPU);

  void operator()(const c10::OperatorHandle& op, c10::DispatchKeySet keys, c10::Stack* stack) const;

  /// The operator's name, which outlives the process.
  [[nodiscard]] const char* name() const { return name_; }

  /// Runs the body or the CPU kernel: arguments in, results out, all on the CPU. Draws if the
  /// operator is random.
  void compute(const c10::OperatorHandle& op, c10::Stack& host, const Draws& draws) const;

 private:
  struct Call;

  [[nodiscard]] c10::Device device_of(c10::ArrayRef<c10::IValue> arguments) const;
  [[nodiscard]] bool host_waits(c10::ArrayRef<c10::IValue> arguments) const;
  /// Calls `visit(tensor, written)` for every strided tensor of the arguments: lists, sparse and
  /// nested ones included.
  template <class Visit>
  void for_each_access(const Call& call, Visit&& visit) const;
  void check_memory(const Call& call) const;
  void report_cost(const Call& call, c10::ArrayRef<c10::IValue> results) const;
  /// All of them leave the results for the caller in `results`.
  void run(const Call& call, c10::Stack& results) const;
  void capture(const Call& call, c10::Stack& results) const;
  /// False, without effect, if the call is not shape-only or is small enough to be computed.
  bool estimate(const Call& call, c10::Stack& results) const;
  void fill_outputs(const Call& call) const;
  void add_idle_node(CUstream stream) const;

  const char* name_;       // never freed: races of the order checker point to it
  const NamedBody* body_;  // null: the CPU has a kernel
  c10::DispatchKey key_;
  DeviceCheck same_device_;
  ShapeRule shapes_;
  ScratchRule scratch_;        // may be null
  std::vector<bool> written_;  // by argument
  std::optional<size_t> generator_at_;
  bool random_;
  bool uses_cublas_;
  bool finds_infinities_;  // a gradient scaler's: the result is in its second argument
  bool data_dependent_;    // the result depends on the values: the host waits for them
};

/// The boxed CUDA kernel of an operator that is not emulated: raises an error with its name.
class RefusingKernel final : public c10::OperatorKernel {
 public:
  void operator()(const c10::OperatorHandle& op, c10::DispatchKeySet keys, c10::Stack* stack) const;
};

}  // namespace spillway::operators
