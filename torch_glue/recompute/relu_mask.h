// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "allocator/base/mutex.h"
#include "torch_glue/saved_tensors/region_options.h"

#include <ATen/core/Tensor.h>
#include <c10/cuda/CUDAStream.h>

#include <memory>

namespace spillway {

class PackHook;

/// What the backward pass of a ReLU needs of its result: which elements are at most zero, a bit for
/// each. This much is kept of a result that its own node has saved, that cannot be recomputed and
/// that nothing else references once its operator's neighbours have run; until then it is kept as
/// it is. Where another node saves it, or something holds it to the end of the region, it is
/// treated as any other saved tensor.
///
/// Threads: safe. Its lock is held while operators run.
class ReluMask {
 public:
  /// Of a tensor that autograd saves on this thread; null where it is no ReLU's own result, or
  /// known from another save. Requires: as RecomputedStorage::of, which gave null.
  static std::shared_ptr<ReluMask> of(const at::Tensor& tensor, const RegionOptions& region);

  /// Its current stream is the one that it is saved on.
  ReluMask(const at::Tensor& result, const RegionOptions& region);

  /// The result where it is there, else one of its layout that the backward pass takes for it: 0
  /// for each bit, else 1. Stream and errors: as PackHook::call_unpack_hook.
  at::Tensor get();

  /// As PackHook::share, for who needs the result itself; null where only its bits are kept.
  std::shared_ptr<PackHook> share();

 private:
  friend void settle_relu_masks(bool all);

  /// Whether nothing is left to decide. Errors: none; the result is kept as it is then, and what
  /// lasts is met by the next operator.
  bool settle(bool at_once);
  bool settle_or_throw(bool at_once);
  bool keep_bits() SPILLWAY_REQUIRES(mutex_);
  void keep_whole(const Decision* decided = nullptr) SPILLWAY_REQUIRES(mutex_);

  const RegionOptions region_;
  const c10::cuda::CUDAStream stream_;  // on which the result was saved
  Mutex mutex_;
  at::Tensor result_ SPILLWAY_GUARDED_BY(mutex_);                 // until it is settled
  std::shared_ptr<PackHook> handle_ SPILLWAY_GUARDED_BY(mutex_);  // from then on
  bool bits_ SPILLWAY_GUARDED_BY(mutex_) = false;                 // are what it has
};

/// Looks at the results that wait on this thread for what becomes of them; `all`: nothing waits any
/// longer. Errors: none; the result is kept then.
void settle_relu_masks(bool all);

}  // namespace spillway
