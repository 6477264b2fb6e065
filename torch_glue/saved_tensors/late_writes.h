// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/util/SmallVector.h>

#include <vector>

namespace spillway {

class PackHook;

/// A call of an operator that writes arguments after autograd has saved them, such as the noise of
/// RReLU. Until the call ends, the saved values do not exist: a copy would read unwritten memory.
///
/// PyTorch's generated code saves arguments before it runs the kernel. A written argument that is
/// also returned gets a new version; autograd itself rejects its earlier save. An argument that is
/// written and not returned gets none. Custom autograd functions are not affected: their tensors
/// are saved after the forward function has returned.
///
/// Threads: confined to the calling thread. Calls nest.
class LateWrites {
 public:
  /// `arguments`: those of a call of `op`, in the order of its schema.
  LateWrites(const c10::OperatorHandle& op, c10::ArrayRef<c10::IValue> arguments);
  ~LateWrites();
  LateWrites(const LateWrites&) = delete;
  LateWrites& operator=(const LateWrites&) = delete;

  /// The kernel is enqueued: packs the tensors of all deferred handles. Errors: as
  /// PackHook::call_pack_hook.
  void finish();

  /// `hook` is packed by finish() instead of now. Requires: it outlives this call, or
  /// cancel_deferred() is called.
  void defer(PackHook& hook) { deferred_.push_back(&hook); }

  /// The call on this thread that writes the storage of `tensor`; null if there is none.
  static LateWrites* of(const at::Tensor& tensor);

  /// Whether this thread runs such a call, whichever tensors it writes.
  static bool running();

  /// `hook` ends before its call does.
  static void cancel_deferred(const PackHook& hook);

 private:
  LateWrites* const outer_;
  c10::SmallVector<const c10::StorageImpl*, 2> written_;
  std::vector<PackHook*> deferred_;
};

/// Whether calls of the operator are LateWrites, by its schema.
bool writes_late(const c10::FunctionSchema& schema);

/// Registers a kernel in front of autograd's for each of PyTorch's operators that writes late.
/// Other operators are not affected. Threads: call once.
void watch_late_writes();

}  // namespace spillway
