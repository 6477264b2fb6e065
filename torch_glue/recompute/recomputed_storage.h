// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "allocator/base/ids.h"
#include "allocator/base/mutex.h"
#include "allocator/runtime/runtime.h"
#include "torch_glue/recompute/recipe.h"
#include "torch_glue/saved_tensors/saved_version.h"

#include <c10/core/Storage.h>
#include <c10/cuda/CUDAStream.h>

#include <atomic>
#include <memory>
#include <optional>

namespace spillway {

/// One storage that is not kept for the backward pass. The operator that produced it runs again
/// when a hook of it is unpacked, once for all hooks that exist then. The hooks share its
/// ownership.
///
/// It is identified by the storage object; a weak reference prevents reuse of its address.
///
/// Threads: safe. Its lock is held while operators run. A storage needed by another one is locked
/// within that one's lock, never the reverse.
class RecomputedStorage {
 public:
  /// The entry for the storage of a tensor that autograd saves in `region`. Null if the tensor
  /// cannot be recomputed, or was changed in place since its storage was first saved. Null also if
  /// the plan of a region's budget keeps or offloads it. Then `decided` is set to that decision,
  /// and `chain` to the length of its chain.
  /// Requires: a strided tensor with memory on a CUDA device, not a parameter, saved on its
  /// `stream`.
  static std::shared_ptr<RecomputedStorage> of(const at::Tensor& tensor,
                                               const RegionOptions& region,
                                               driver::Stream stream,
                                               std::optional<Decision>& decided,
                                               int& chain);

  RecomputedStorage(const at::Tensor& whole, std::unique_ptr<Recipe> recipe, Site site);
  ~RecomputedStorage();
  RecomputedStorage(const RecomputedStorage&) = delete;
  RecomputedStorage& operator=(const RecomputedStorage&) = delete;

  /// Adds a hook; `round` belongs to the hook until remove_hook().
  void add_hook(std::uint64_t& round);
  void remove_hook(std::uint64_t round);

  /// Its bytes: the storage itself if it still exists, otherwise recomputed.
  /// Stream: usable on the current stream; no host wait.
  /// Errors: as Recipe::run, and c10::OutOfMemoryError; nothing has changed then.
  c10::Storage get(std::uint64_t& round);

  /// As Recipe::chain, including this one.
  [[nodiscard]] int chain() const { return recipe_->chain() + 1; }

 private:
  c10::Storage get_storage(std::uint64_t& round);
  [[nodiscard]] c10::Storage original() const;
  [[nodiscard]] DeviceRuntime& runtime() const;
  c10::Storage remake();
  [[nodiscard]] at::Tensor run_again() const;
  void release_waiter() SPILLWAY_REQUIRES(mutex_);

  const c10::weak_intrusive_ptr<c10::StorageImpl> source_;
  c10::StorageImpl* const key_;
  const void* const data_;
  const std::size_t size_;
  const SavedVersion version_;
  const Site site_;  // its tag; in a step with a budget, also its index
  const at::Device device_;
  const c10::DimVector sizes_;
  const c10::DimVector strides_;
  const caffe2::TypeMeta dtype_;
  const std::unique_ptr<Recipe> recipe_;

  std::atomic<bool> used_{false};
  LightMutex mutex_;
  /// Recomputed on this stream. Kept until every hook of that time has fetched it or ended.
  c10::Storage held_ SPILLWAY_GUARDED_BY(mutex_);
  std::optional<c10::cuda::CUDAStream> stream_ SPILLWAY_GUARDED_BY(mutex_);
  std::uint64_t round_ SPILLWAY_GUARDED_BY(mutex_) = 0;  // incremented at each recomputation
  std::int64_t hooks_ SPILLWAY_GUARDED_BY(mutex_) = 0;
  std::int64_t waiting_ SPILLWAY_GUARDED_BY(mutex_) = 0;
};

}  // namespace spillway
