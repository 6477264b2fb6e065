// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "torch_glue/saved_tensors/layout.h"
#include "torch_glue/saved_tensors/saved_version.h"

#include <ATen/record_function.h>
#include <c10/core/Storage.h>

#include <functional>
#include <memory>
#include <unordered_map>

namespace spillway {

/// Tracks casts of weights on this thread, such as those of autocast, which can be recomputed
/// instead of kept.
///
/// Threads: confined; may be nested. Observes the thread's operators during its lifetime.
class WeightCasts {
 public:
  /// A whole weight in another dtype.
  struct Cast {
    Layout weight;
    SavedVersion version;  // of the weight
    at::ScalarType dtype;

    /// Recomputes the cast bit for bit from the weight in `storage`.
    /// Errors: c10::Error if the weight has been changed since.
    [[nodiscard]] c10::Storage again(c10::Storage storage) const;
  };

  using IsWeight = std::function<bool(const at::Tensor&)>;

  /// `is_weight`: whether a tensor on the storage `weights` is one of them.
  WeightCasts(const c10::StorageImpl* weights, IsWeight is_weight);
  ~WeightCasts();
  WeightCasts(const WeightCasts&) = delete;
  WeightCasts& operator=(const WeightCasts&) = delete;

  /// The cast that `tensor` is a view of; null if it is not an unchanged cast of one of `weights`
  /// that this thread has tracked.
  [[nodiscard]] static std::shared_ptr<const Cast> find(const at::Tensor& tensor,
                                                        const c10::StorageImpl* weights);

 private:
  struct Known {
    c10::weak_intrusive_ptr<c10::StorageImpl> alive;  // prevents reuse of the address
    std::uint32_t version;
    std::shared_ptr<const Cast> cast;
  };

  struct Beginning;
  static std::unique_ptr<at::ObserverContext> begin(const at::RecordFunction& call);
  static void end(const at::RecordFunction& call, at::ObserverContext* context);

  const c10::StorageImpl* const weights_;
  const IsWeight is_weight_;
  WeightCasts* const outer_;
  const at::CallbackHandle watching_;
  std::unordered_map<const c10::StorageImpl*, Known> known_;
};

}  // namespace spillway
