// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "allocator/base/pooled.h"
#include "torch_glue/compat.h"
#include "torch_glue/saved_tensors/layout.h"
#include "torch_glue/saved_tensors/region_stack.h"
#include "torch_glue/saved_tensors/saved_storage.h"
#include "torch_glue/saved_tensors/saved_version.h"

#include <memory>
#include <optional>

namespace spillway {

class RecomputedStorage;
class ReluMask;
struct OperatorNote;

/// The handle that a graph keeps in place of one saved tensor: the tensor, detached; or what it
/// takes to have it again over its storage's bytes, which have moved or are computed again; or
/// hooks for the tensors that it wraps.
///
/// Threads: as autograd's nodes; ends without the Python lock.
class PackHook final : public torch::autograd::SavedVariableHooks, public Pooled<PackHook> {
 public:
  /// `region`: what it moves, null where it moves nothing. It must live until the tensor is packed.
  explicit PackHook(const RegionOptions* region);
  ~PackHook() override;
  PackHook(const PackHook&) = delete;
  PackHook& operator=(const PackHook&) = delete;

  void call_pack_hook(const at::Tensor& tensor) override;

  /// Stream: usable on the current stream; no host wait. Errors: c10::Error where the tensor was
  /// changed in place since it was saved (invariant 9 in docs/invariants.md), with its name, and
  /// those of SavedStorage::fetch.
  at::Tensor call_unpack_hook() override;

  /// As call_unpack_hook, where locks may be held: an error has no name.
  at::Tensor unpack();

  /// The storage that moved, null where the tensor is kept.
  [[nodiscard]] std::shared_ptr<SavedStorage> moved() const {
    return kept_.defined() ? nullptr : storage_;
  }

  /// Another handle of the same, which need not end with this one; null for wrappers (is_wrapper):
  /// recomputation runs operators below the dispatch of Python and functorch, which they need.
  /// Requires: the tensor is packed.
  [[nodiscard]] std::shared_ptr<PackHook> share() const;

  /// A handle of a tensor that was kept elsewhere, at its version `saved`; null where it has been
  /// changed since, and for wrappers.
  static std::shared_ptr<PackHook> of_kept(const at::Tensor& tensor, std::uint32_t saved);

  /// A handle of a tensor that is computed again.
  static std::shared_ptr<PackHook> of_recomputed(const at::Tensor& tensor,
                                                 std::shared_ptr<RecomputedStorage> recomputed);

  /// Where a tensor that is kept or has moved can be had, without holding it.
  struct Trace {
    SavedVersion version;
    c10::weak_intrusive_ptr<c10::TensorImpl> kept;  // expired from the beginning where it moved
    std::weak_ptr<SavedStorage> moved;
    Layout layout;  // where it moved
  };

  /// None of a tensor that is recomputed, and of wrappers.
  [[nodiscard]] std::optional<Trace> trace() const;

  /// A handle of the same tensor at its version `saved`; null where all who had it have ended, or
  /// it was at another version or has been changed.
  static std::shared_ptr<PackHook> of_trace(const Trace& trace, std::uint32_t saved);

  /// Packs the tensor of a handle that LateWrites has deferred. Its operator has ended.
  void pack_deferred();

  /// As call_pack_hook, which also looks at the results of ReLU that wait (settle_relu_masks).
  void pack(const at::Tensor& tensor);

  /// As pack(), for a tensor of which a plan has said that it is kept or moves.
  void pack_as_decided(const at::Tensor& tensor, driver::Stream stream, const Decision& decided);

  /// Whether the tensor has been changed in place since it was saved.
  [[nodiscard]] bool changed() const { return version_.changed(); }

  /// What the operator that saved it noted (OperatorNote); null where it noted nothing.
  [[nodiscard]] const std::shared_ptr<const OperatorNote>& note() const { return note_; }

  /// How many tensors are computed again to have it, one behind the other.
  [[nodiscard]] int chain() const;

  /// Compiled autograd unpacks at once where there are no Python hooks to trace.
  compat::UnpackHookData retrieve_unpack_hook_data() const override { return std::nullopt; }

 private:
  struct Parts;
  /// `decided`: what becomes of it instead, where a plan has chosen that.
  bool leave_to_recompute(const at::Tensor& tensor,
                          driver::Stream stream,
                          std::optional<Decision>& decided);
  bool move(const at::Tensor& tensor,
            driver::Stream stream,
            const std::optional<Decision>& decided);
  bool move_parts(const at::Tensor& tensor);
  void keep(const at::Tensor& tensor);
  bool defer(const at::Tensor& tensor);
  [[nodiscard]] bool is_wrapped() const;
  [[nodiscard]] at::DimVector sizes() const;

  /// Whether recipes may ask what it packs. Requires: the tensor is not packed yet.
  [[nodiscard]] bool serves_recipes() const { return region_ == nullptr || region_->recompute; }

  const RegionOptions* const region_;  // until the tensor is packed
  SavedVersion version_;
  at::Tensor kept_;  // undefined where it moved
  std::shared_ptr<SavedStorage> storage_;
  std::shared_ptr<RecomputedStorage> recomputed_;  // where it is computed again
  std::shared_ptr<ReluMask> mask_;                 // has it instead, where it is a ReLU's result
  std::shared_ptr<const OperatorNote> note_;
  std::uint64_t round_ = 0;
  std::optional<Layout> layout_;  // none of a tensor that is kept, and of one that wraps others
  int chain_ = 0;                 // what chain() would be, had a plan not kept or moved it
  bool deferred_ = false;         // LateWrites has its address
  std::unique_ptr<Parts> parts_;  // of a tensor that wraps others, null for every other one
};

}  // namespace spillway
