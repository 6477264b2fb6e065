// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "allocator/base/ids.h"
#include "allocator/runtime/runtime.h"
#include "torch_glue/saved_storage/shared_storage.h"
#include "torch_glue/saved_tensors/recipe.h"
#include "torch_glue/saved_tensors/saved_version.h"

#include <c10/core/Storage.h>
#include <c10/cuda/CUDAStream.h>

#include <atomic>
#include <memory>
#include <optional>
#include <vector>

namespace spillway {

/// What is known of a saved tensor once it has been examined for recomputation.
struct Examined {
  std::optional<Decision> decided{};  // on its storage, if it can be recomputed
  RecomputeChain chain{};             // Recipe::chain, if it can be recomputed
  /// As Recipe::substitutes, if the decision is not to recompute it.
  std::vector<std::shared_ptr<SharedStorage>> substitutes{};
};

/// A storage that is not kept for the backward pass. The operator that produced it runs again when
/// a handle of it is unpacked, once for all handles that exist then.
///
/// Threads: safe. Its lock is not held while operators run. Threads that use it at the same moment
/// may each recompute it.
class RecomputedStorage final : public SharedStorage,
                                public std::enable_shared_from_this<RecomputedStorage> {
 public:
  /// The entry for the storage of a tensor that autograd saves in `region`. Null if the tensor
  /// cannot be recomputed, ends a chain, or was changed in place since its storage was first saved.
  /// Null also if the plan of a region's budget keeps or offloads it; `examined` then has that
  /// decision, and its chain if it is recomputed or decided on.
  /// Requires: a strided tensor with memory on a CUDA device, not a parameter, saved on its
  /// `stream`.
  static std::shared_ptr<RecomputedStorage> of(const at::Tensor& tensor,
                                               const RegionOptions& region,
                                               driver::Stream stream,
                                               Examined& examined);

  RecomputedStorage(const at::Tensor& whole, std::unique_ptr<Recipe> recipe, Site site);
  ~RecomputedStorage() override;
  RecomputedStorage(const RecomputedStorage&) = delete;
  RecomputedStorage& operator=(const RecomputedStorage&) = delete;

  /// Errors: as Recipe::run, too.
  OnDevice fetch(std::uint64_t& round, const ByteRange& bytes) override;

  /// Called when the device has no room: releases the result unless something uses it. Returns the
  /// bytes that are then free in stream order; the next use recomputes it again. Stream: no wait.
  Bytes reclaim();

  /// As Recipe::chain.
  [[nodiscard]] RecomputeChain chain() const { return recipe_->chain(size_); }

  /// As Recipe::available.
  [[nodiscard]] bool available() const { return recipe_->available(); }

 private:
  c10::Storage get_storage(std::uint64_t& round);
  c10::Storage take_held(std::uint64_t& round) SPILLWAY_REQUIRES(mutex_);
  [[nodiscard]] DeviceRuntime& runtime() const;
  c10::Storage remake();
  [[nodiscard]] at::Tensor run_again() const;
  void before_release() override SPILLWAY_REQUIRES(mutex_);

  const SavedVersion version_;
  const Site site_;  // its tag; in a step with a budget, also its index
  const at::Device device_;
  const c10::DimVector sizes_;
  const c10::DimVector strides_;
  const caffe2::TypeMeta dtype_;
  const std::unique_ptr<Recipe> recipe_;

  std::atomic<bool> used_{false};
  std::optional<c10::cuda::CUDAStream> stream_ SPILLWAY_GUARDED_BY(mutex_);  // of held_
};

}  // namespace spillway
