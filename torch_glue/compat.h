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

/// Everything that depends on the version of torch is in this file: a new minor version is ported
/// here, then let in by python/spillway/_torch_versions.py. The virtual functions of Engine and
/// CUDAAllocator are compiled in with `override`, so a changed one does not compile.
namespace spillway::compat {

#if TORCH_VERSION_MINOR >= 13
template <typename T>
using NodeOf = c10::intrusive_ptr<T>;
using WeakNodePtr = c10::weak_intrusive_ptr<torch::autograd::Node>;

template <typename T, typename... Arguments>
NodeOf<T> make_node(Arguments&&... arguments) {
  return c10::make_intrusive<T>(std::forward<Arguments>(arguments)...);
}
#else
template <typename T>
using NodeOf = std::shared_ptr<T>;
using WeakNodePtr = std::weak_ptr<torch::autograd::Node>;

/// Nodes are deleted one after another, however long a graph is.
template <typename T, typename... Arguments>
NodeOf<T> make_node(Arguments&&... arguments) {
  return {new T(std::forward<Arguments>(arguments)...), torch::autograd::deleteNode};
}
#endif
using NodePtr = NodeOf<torch::autograd::Node>;
using GraphTaskRef = const std::shared_ptr<torch::autograd::GraphTask>&;
using UnpackHookData = std::optional<std::pair<c10::SafePyObject, c10::SafePyObject>>;

/// The tensor that `view` is a differentiable view of, null where it is none.
inline const at::Tensor* view_base(const at::Tensor& view) {
  const auto* meta = torch::autograd::impl::get_view_autograd_meta(view);
  return meta != nullptr && meta->has_bw_view() ? &meta->get_backward_view().base_ : nullptr;
}

/// How many hold a storage. Its Python object counts among them, and lives for as long as the
/// storage once Python has looked at it: it is no holder where no Python code has it.
template <typename Reference>  // a c10::Storage, or an intrusive pointer to its implementation
size_t holders(const Reference& reference, const c10::StorageImpl& storage) {
  return reference.use_count() - (storage.pyobj_slot()->has_unique_reference() ? 1U : 0U);
}

/// torch's own interface of CUDA allocators; what only some versions ask for is answered here.
class CudaAllocatorInterface : public c10::cuda::CUDACachingAllocator::CUDAAllocator {
#if TORCH_VERSION_MINOR >= 12
 public:
  /// Of requests that PyTorch's own allocator refuses by a policy of its own: Spillway's has none.
  void attachOomRejectionObserver(c10::cuda::CUDACachingAllocator::OomRejectionObserver) override {}
#endif
};

/// The memory of an entry of PyTorch's tables of cuBLAS's workspaces, in later versions with its
/// size.
template <typename Kept>
const at::DataPtr& workspace_memory(const Kept& kept) {
  if constexpr (std::is_same_v<Kept, at::DataPtr>) {
    return kept;
  } else {
    return kept.first;
  }
}

/// Whether its dimensions have names, where torch still has such tensors.
inline bool has_names(const c10::TensorImpl& tensor) {
#if TORCH_VERSION_MINOR >= 13
  static_cast<void>(tensor);
  return false;
#else
  return tensor.has_named_tensor_meta();
#endif
}

/// Tells counters apart: equal for tensors that share one version counter, null for inference
/// tensors. VariableVersion keeps its counter private and is nothing but the pointer to it.
inline const void* counter_identity(const c10::VariableVersion& version) {
  static_assert(sizeof(c10::VariableVersion) == sizeof(void*));
  return *reinterpret_cast<const void* const*>(&version);
}

namespace {  // instantiated once for each source file

/// Gives the address of a member that its class keeps private: an explicit instantiation may name
/// it.
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

#undef SPILLWAY_REVEAL

}  // namespace

/// The hooks of a saved tensor, null where it has none. torch gives offloaded only their Python
/// half.
inline torch::autograd::SavedVariableHooks* hooks_of(const torch::autograd::SavedVariable& saved) {
  return (saved.*reveal(SavedHooks())).get();
}

/// The version that the tensor had when it was saved without hooks.
inline std::uint32_t version_of(const torch::autograd::SavedVariable& saved) {
  return saved.*reveal(SavedVersionNumber());
}

/// Whether there was nothing to save; what has been released was there.
inline bool never_saved(const torch::autograd::SavedVariable& saved) {
  return saved.*reveal(NeverSaved());
}

/// The lock that a node takes to release what it has saved, and while it runs.
inline std::mutex& mutex_of(const torch::autograd::Node& node) {
  return const_cast<torch::autograd::Node&>(node).*reveal(NodeMutex());
}

}  // namespace spillway::compat
