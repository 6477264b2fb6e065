// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/TensorImpl.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/saved_variable.h>
#include <torch/csrc/autograd/saved_variable_hooks.h>
#include <torch/csrc/autograd/variable.h>
#include <torch/version.h>

#include <cstdint>
#include <memory>
#include <mutex>
#include <type_traits>
#include <utility>

/// All code that depends on the torch version. A new minor version is ported here, then enabled in
/// python/spillway/_torch_versions.py. The virtual functions of Engine and CUDAAllocator are
/// compiled with `override`, so a changed signature does not compile.
namespace spillway::compat {

#if TORCH_VERSION_MINOR >= 13
using NodePtr = c10::intrusive_ptr<torch::autograd::Node>;
using WeakNodePtr = c10::weak_intrusive_ptr<torch::autograd::Node>;
#else
using NodePtr = std::shared_ptr<torch::autograd::Node>;
using WeakNodePtr = std::weak_ptr<torch::autograd::Node>;
#endif
using GraphTaskRef = const std::shared_ptr<torch::autograd::GraphTask>&;
using UnpackHookData = std::optional<std::pair<c10::SafePyObject, c10::SafePyObject>>;

/// The tensor that `view` is a differentiable view of; null if it is not a view.
inline const at::Tensor* view_base(const at::Tensor& view) {
  const auto* meta = torch::autograd::impl::get_view_autograd_meta(view);
  return meta != nullptr && meta->has_bw_view() ? &meta->get_backward_view().base_ : nullptr;
}

/// Number of references to a storage. Its Python object is one of them, and once created it lives
/// as long as the storage. It does not count here if no Python code references it.
template <typename Reference>  // a c10::Storage, or an intrusive pointer to its implementation
size_t holders(const Reference& reference, const c10::StorageImpl& storage) {
  return reference.use_count() - (storage.pyobj_slot()->has_unique_reference() ? 1U : 0U);
}

/// Number of references to a storage from C++: all but its Python object, whether or not that is
/// referenced. Takes no Python lock.
template <typename Reference>
size_t holders_in_cpp(const Reference& reference, const c10::StorageImpl& storage) {
  return reference.use_count() - (storage.pyobj_slot()->load_pyobj() != nullptr ? 1U : 0U);
}

/// torch's interface of CUDA allocators. Functions that only some versions declare are implemented
/// here.
class CudaAllocatorInterface : public c10::cuda::CUDACachingAllocator::CUDAAllocator {
#if TORCH_VERSION_MINOR >= 12
 public:
  /// Observes requests that PyTorch's own allocator refuses by policy; Spillway has no such policy.
  void attachOomRejectionObserver(c10::cuda::CUDACachingAllocator::OomRejectionObserver) override {}
#endif
};

/// The memory of an entry in PyTorch's table of cuBLAS workspaces; later versions store its size
/// too.
template <typename Kept>
const at::DataPtr& workspace_memory(const Kept& kept) {
  if constexpr (std::is_same_v<Kept, at::DataPtr>) {
    return kept;
  } else {
    return kept.first;
  }
}

/// The owner of a storage's memory, without the checks of StorageImpl::data_ptr().
inline const at::DataPtr& data_ptr_of(const c10::StorageImpl& storage) {
  return const_cast<c10::StorageImpl&>(storage)._mutable_data_ptr_no_checks();
}

/// The dispatch key of tensors whose storages may be offloaded as they are (model_state/guard.h).
/// PyTorch declares it for use outside its tree.
constexpr auto kGuardKey = c10::DispatchKey::Fake;

/// Adds a dispatch key to a tensor.
inline void add_key(c10::TensorImpl& tensor, c10::DispatchKey key) {
  struct Keys : c10::TensorImpl {
    static c10::DispatchKeySet& of(c10::TensorImpl& tensor) {
      return static_cast<Keys&>(tensor).key_set_;
    }
  };

  Keys::of(tensor) = Keys::of(tensor).add(key);
}

/// Whether its dimensions have names, if the torch version supports named tensors.
inline bool has_names(const c10::TensorImpl& tensor) {
#if TORCH_VERSION_MINOR >= 13
  static_cast<void>(tensor);
  return false;
#else
  return tensor.has_named_tensor_meta();
#endif
}

/// An identity for comparison: equal for tensors that share one version counter, null for inference
/// tensors. VariableVersion contains only a private pointer to its counter.
inline const void* counter_identity(const c10::VariableVersion& version) {
  static_assert(sizeof(c10::VariableVersion) == sizeof(void*));
  return *reinterpret_cast<const void* const*>(&version);
}

namespace {  // one instance per source file

/// The address of a private member of a class. Explicit instantiations are exempt from access
/// checks.
template <typename Tag, typename Tag::Type kMember>
struct Reveal {
  friend typename Tag::Type reveal(Tag) { return kMember; }
};

#define SPILLWAY_REVEAL(NAME, CLASS, TYPE, MEMBER) \
  struct NAME {                                    \
    using Type = TYPE CLASS::*;                    \
    friend Type reveal(NAME);                      \
  };                                               \
  template struct Reveal<NAME, &CLASS::MEMBER>

SPILLWAY_REVEAL(SavedHooks,
                torch::autograd::SavedVariable,
                std::unique_ptr<torch::autograd::SavedVariableHooks>,
                hooks_);
SPILLWAY_REVEAL(SavedVersionNumber, torch::autograd::SavedVariable, std::uint32_t, saved_version_);
SPILLWAY_REVEAL(NeverSaved, torch::autograd::SavedVariable, bool, was_default_constructed_);
SPILLWAY_REVEAL(NodeMutex, torch::autograd::Node, std::mutex, mutex_);
SPILLWAY_REVEAL(OwnerOfData, c10::DataPtr, c10::detail::UniqueVoidPtr, ptr_);
SPILLWAY_REVEAL(AddressOfData, c10::detail::UniqueVoidPtr, void*, data_);

#undef SPILLWAY_REVEAL

}  // namespace

/// Changes the address of a storage's memory, and neither its owner nor its size.
inline void set_address(c10::StorageImpl& storage, void* at) {
  (storage._mutable_data_ptr_no_checks().*reveal(OwnerOfData())).*reveal(AddressOfData()) = at;
}

/// The hooks of a saved tensor; null if it has none. torch exposes only their Python half.
inline torch::autograd::SavedVariableHooks* hooks_of(const torch::autograd::SavedVariable& saved) {
  return (saved.*reveal(SavedHooks())).get();
}

/// The tensor's version when it was saved without hooks.
inline std::uint32_t version_of(const torch::autograd::SavedVariable& saved) {
  return saved.*reveal(SavedVersionNumber());
}

/// Whether no tensor was saved. False for a tensor that was saved and released.
inline bool never_saved(const torch::autograd::SavedVariable& saved) {
  return saved.*reveal(NeverSaved());
}

/// The lock that a node holds while it runs, and while it releases its saved tensors.
inline std::mutex& mutex_of(const torch::autograd::Node& node) {
  return const_cast<torch::autograd::Node&>(node).*reveal(NodeMutex());
}

}  // namespace spillway::compat
