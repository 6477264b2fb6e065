// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "allocator/base/mutex.h"
#include "torch_glue/saved_storage/region_options.h"

#include <ATen/core/Tensor.h>
#include <c10/cuda/CUDAStream.h>

#include <memory>

namespace spillway {

class PackHook;

/// One bit per element of a ReLU's result, set if the element is at most zero. The backward pass of
/// the ReLU needs no more. The mask replaces a result that its own node saved, that cannot be
/// recomputed, and that is otherwise unreferenced once the following operators have run. Until then
/// the result is kept. A result that another node saves, or that is referenced until the region
/// ends, is handled as any saved tensor.
///
/// Threads: safe. Its lock is held while operators run.
class ReluMask {
 public:
  /// The mask of a tensor that autograd saves on this thread. Null if it is not a ReLU's own
  /// result, or was saved before.
  /// Requires: as RecomputedStorage::of, which returned null.
  static std::shared_ptr<ReluMask> of(const at::Tensor& tensor, const RegionOptions& region);

  /// Its current stream is the stream of the save.
  ReluMask(const at::Tensor& result, const RegionOptions& region);

  /// The result if it is available, else a tensor of its layout for the backward pass: 0 for each
  /// set bit, else 1. Stream and errors: as PackHook::call_unpack_hook.
  at::Tensor get();

  /// As PackHook::share, for a user of the result itself; null if only its bits are kept.
  std::shared_ptr<PackHook> share();

 private:
  friend void settle_relu_masks(bool all);

  /// Decides between result and bits if possible; true if it is decided.
  /// Errors: none. After a failure the result is kept, and the next operator reports a lasting
  /// error.
  bool settle(bool at_once);
  bool keep_bits() SPILLWAY_REQUIRES(mutex_);
  void keep_whole(const Decision* decided = nullptr) SPILLWAY_REQUIRES(mutex_);

  const RegionOptions region_;
  const c10::cuda::CUDAStream stream_;  // the stream of the save
  Mutex mutex_;
  at::Tensor result_ SPILLWAY_GUARDED_BY(mutex_);                 // until the decision
  std::shared_ptr<PackHook> handle_ SPILLWAY_GUARDED_BY(mutex_);  // after the decision
  bool bits_ SPILLWAY_GUARDED_BY(mutex_) = false;                 // the bits are kept
};

/// Decides on the results that wait on this thread; `all`: decides on all of them now.
/// Errors: none; after a failure the result is kept.
void settle_relu_masks(bool all);

}  // namespace spillway
