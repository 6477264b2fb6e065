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

/// Weights in another dtype, as autocast makes them, can be remade instead of being kept: knows
/// which tensors of this thread are such.
///
/// Threads: confined; may be nested. Watches the thread's operators while it lives.
class WeightCasts {
 public:
  /// A whole weight in another dtype.
  struct Cast {
    Layout weight;
    SavedVersion version;  // of the weight
    at::ScalarType dtype;

    /// The same bits once more, from the weight in `storage`. Errors: c10::Error where the weight
    /// has been changed since.
    [[nodiscard]] c10::Storage again(c10::Storage storage) const;
  };

  using IsWeight = std::function<bool(const at::Tensor&)>;

  /// `is_weight`: whether a tensor on the storage `weights` is one of them.
  WeightCasts(const c10::StorageImpl* weights, IsWeight is_weight);
  ~WeightCasts();
  WeightCasts(const WeightCasts&) = delete;
  WeightCasts& operator=(const WeightCasts&) = delete;

  /// What `tensor` is a view of, null where that is no cast of one of `weights` that this thread
  /// has watched, or has been changed.
  [[nodiscard]] static std::shared_ptr<const Cast> find(const at::Tensor& tensor,
                                                        const c10::StorageImpl* weights);

 private:
  struct Known {
    c10::weak_intrusive_ptr<c10::StorageImpl> alive;  // so that no other can have its address
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
