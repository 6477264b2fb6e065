// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "allocator/base/pooled.h"
#include "torch_glue/base/compat.h"
#include "torch_glue/saved_storage/saved_storage.h"
#include "torch_glue/saved_tensors/layout.h"
#include "torch_glue/saved_tensors/saved_version.h"

#include <functional>
#include <memory>
#include <optional>
#include <variant>
#include <vector>

namespace spillway {

class PackHook;
class RecomputedStorage;
class ReluMask;
struct Examined;
struct OperatorNote;

/// The forms of a saved tensor in a graph. The tensor itself, on the device:
struct Kept {
  at::Tensor tensor{};                    // undefined until it is packed
  StorageHandle<SavedStorage> storage{};  // if that has decided to keep it
};

/// Its layout over a storage that is on the host, or may be copied there later in the step.
struct Offloaded {
  Layout layout;
  StorageHandle<SavedStorage> storage;
};

/// Its layout over a storage that is recomputed.
struct Recomputed {
  Layout layout;
  StorageHandle<SharedStorage> storage;
};

/// A result of ReLU, which may become a bit per element.
struct Masked {
  at::DimVector sizes;
  std::shared_ptr<ReluMask> mask;
};

/// The tensors that a tensor wraps, each with a handle of its own.
struct Wrapped {
  at::DimVector sizes;  // of the outer tensor
  std::function<at::Tensor(const std::vector<at::Tensor>&)> wrap;
  std::vector<std::shared_ptr<PackHook>> inner;
};

using SavedForm = std::variant<Kept, Offloaded, Recomputed, Masked, Wrapped>;

/// The saved-tensor handle that a graph keeps in place of one tensor: its form and its version.
///
/// Threads: as autograd's nodes; destroyed without the Python lock.
class PackHook final : public torch::autograd::SavedVariableHooks, public Pooled<PackHook> {
 public:
  /// `region`: the offloading region; null if nothing is offloaded. It must outlive the packing of
  /// the tensor.
  explicit PackHook(const RegionOptions* region);
  /// A handle of a tensor that is saved already, in this form.
  PackHook(SavedVersion version, SavedForm form, const RecomputeChain& chain = {});
  ~PackHook() override;
  PackHook(const PackHook&) = delete;
  PackHook& operator=(const PackHook&) = delete;

  void call_pack_hook(const at::Tensor& tensor) override;

  /// Stream: usable on the current stream; no host wait. Errors: c10::Error where the tensor was
  /// changed in place since it was saved (invariant 9 in docs/invariants.md), with its name, and
  /// those of SharedStorage::fetch.
  at::Tensor call_unpack_hook() override;

  /// As call_unpack_hook, for callers that hold locks: the error has no name.
  at::Tensor unpack();

  /// The offloaded storage; null if the tensor is not offloaded.
  [[nodiscard]] std::shared_ptr<SavedStorage> offloaded() const;

  /// The entry of its storage, if there is a decision on it; null otherwise.
  [[nodiscard]] std::shared_ptr<SharedStorage> decided() const;

  /// Another handle of the same tensor, with a lifetime of its own. Null for wrappers (is_wrapper):
  /// recomputation runs below the dispatch of Python and functorch, which wrappers need.
  /// Requires: the tensor is packed.
  [[nodiscard]] std::shared_ptr<PackHook> share() const;

  /// A handle of a tensor that is kept elsewhere, at its version `saved`; null if it has changed
  /// since, and for wrappers.
  static std::shared_ptr<PackHook> of_kept(const at::Tensor& tensor, std::uint32_t saved);

  /// A handle of a recomputed tensor.
  static std::shared_ptr<PackHook> of_recomputed(const at::Tensor& tensor,
                                                 std::shared_ptr<RecomputedStorage> recomputed);

  /// A weak reference to a saved tensor.
  struct Trace {
    SavedVersion version;
    bool is_kept;
    c10::weak_intrusive_ptr<c10::TensorImpl> kept;  // empty if it was not
    std::weak_ptr<SavedStorage> storage;            // of a kept tensor, if it decided to keep it
    std::weak_ptr<SharedStorage> recomputed;
    Layout layout;
    RecomputeChain chain;

    [[nodiscard]] bool expired() const {
      return is_kept ? kept.expired() : storage.expired() && recomputed.expired();
    }
  };

  /// None for masked tensors and for wrappers.
  [[nodiscard]] std::optional<Trace> trace() const;

  /// A handle of the same tensor at its version `saved`. Null if all its handles have ended, or if
  /// it had another version or has changed.
  static std::shared_ptr<PackHook> of_trace(const Trace& trace, std::uint32_t saved);
  /// As of_trace, for another tensor over bytes that the saved one covers.
  static std::shared_ptr<PackHook> of_trace(const Trace& trace, const Layout& layout);

  /// Packs the tensor of a handle that LateWrites has deferred. Its operator has ended.
  void pack_deferred();

  /// As call_pack_hook, without settling the waiting results of ReLU (settle_relu_masks).
  void pack(const at::Tensor& tensor);

  /// As pack(), for a tensor that a plan keeps or offloads.
  void pack_as_decided(const at::Tensor& tensor, driver::Stream stream, const Decision& decided);

  /// Whether the tensor has been changed in place since it was saved.
  [[nodiscard]] bool changed() const { return version_.changed(); }

  /// Whether what it is restored from still has its memory. FSDP and DeepSpeed free gathered
  /// parameters at the end of a module's forward pass, and gather them again before its backward
  /// pass: too late for the results of earlier modules.
  [[nodiscard]] bool available() const;

  /// The note of the operator that saved it (OperatorNote); null if there is none.
  [[nodiscard]] const std::shared_ptr<const OperatorNote>& note() const { return note_; }

  /// What is recomputed for it. For a tensor that a plan keeps or offloads, what would be without
  /// that decision.
  [[nodiscard]] const RecomputeChain& chain() const { return chain_; }

  /// Compiled autograd unpacks immediately if there are no Python hooks to trace.
  compat::UnpackHookData retrieve_unpack_hook_data() const override { return std::nullopt; }

 private:
  bool defer(const at::Tensor& tensor);
  /// Gives the tensor the form that the region chooses. False if it stays, which is then counted.
  bool choose(const at::Tensor& tensor);
  /// These return false if they leave the form as it is. `examined`: set if a plan has chosen
  /// another action.
  bool save_parts(const at::Tensor& tensor);
  bool leave_to_recompute(const at::Tensor& tensor, driver::Stream stream, Examined& examined);
  void offload(const at::Tensor& tensor, driver::Stream stream, Examined examined);
  [[nodiscard]] Kept keep(const at::Tensor& tensor, StorageHandle<SavedStorage> storage = {}) const;
  [[nodiscard]] at::DimVector sizes() const;

  /// Whether recipes may use the tensor. Requires: the tensor is not packed yet.
  [[nodiscard]] bool serves_recipes() const { return region_ == nullptr || region_->recompute; }

  const RegionOptions* const region_;  // until the tensor is packed
  SavedVersion version_;
  SavedForm form_;
  std::shared_ptr<const OperatorNote> note_;
  RecomputeChain chain_;
  bool deferred_ = false;  // LateWrites refers to it
};

}  // namespace spillway
