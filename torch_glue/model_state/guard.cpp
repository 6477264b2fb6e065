// SPDX-License-Identifier: Apache-2.0
#include "torch_glue/model_state/guard.h"

#include "torch_glue/base/compat.h"
#include "torch_glue/base/streams.h"
#include "torch_glue/model_state/guarded_operator.h"
#include "torch_glue/model_state/list_slices.h"
#include "torch_glue/model_state/managed_storages.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/library.h>

namespace spillway {
namespace {

constexpr auto kKey = compat::kGuardKey;

}  // namespace

void run_below_guard(const c10::OperatorHandle& op, c10::DispatchKeySet keys, c10::Stack* stack) {
  // The key stays included: kernels in Python, modes and hooks use other managed tensors too.
  op.redispatchBoxed(keys & c10::DispatchKeySet(c10::DispatchKeySet::FULL_AFTER, kKey), stack);
}

namespace {

void guard(const c10::OperatorHandle& op, c10::DispatchKeySet keys, c10::Stack* stack) {
  if (ManagedStorages::instance().chaotic()) ManagedStorages::instance().make_chaos();
  const GuardedOperator& known = GuardedOperator::of(op);
  if (known.takes_lists() && run_in_slices(known, op, keys, stack)) return;
  PinnedStorages pinned;
  const std::size_t first = stack->size() - known.arguments();
  for (std::size_t i = 0; i < known.arguments(); ++i)
    pinned.add((*stack)[first + i], known.writes(i));
  run_below_guard(op, keys, stack);
}

}  // namespace

void install_guard() {
  static auto* const library =
      new torch::Library(torch::Library::IMPL, "_", kKey, __FILE__, __LINE__);
  static const bool once = [] {
    library->fallback(torch::CppFunction::makeFromBoxedFunction<&guard>());
    return true;
  }();
  static_cast<void>(once);
}

void set_guarded(const at::Tensor& tensor) {
  compat::add_key(*tensor.unsafeGetTensorImpl(), kKey);
}

PinnedStorages::~PinnedStorages() {
  for (const auto& storage : pinned_)
    storage->unpin();
}

void PinnedStorages::add(const c10::StorageImpl& storage, bool writes) {
  ManagedStorage* const managed = ManagedStorage::of(storage);
  if (managed == nullptr) return;
  ManagedStorages::instance().used(*managed);
  auto owner = managed->shared_from_this();
  managed->pin(current_stream(managed->device().device().id),
               writes || managed->model_class() == ModelClass::kBuffer);
  pinned_.push_back(std::move(owner));
}

void PinnedStorages::add(const at::Tensor& tensor, bool writes) {
  if (!tensor.defined() || !tensor.has_storage()) return;
  add(*tensor.storage().unsafeGetStorageImpl(), writes);
}

void PinnedStorages::add(const c10::IValue& value, bool writes) {
  if (value.isTensor()) {
    add(value.toTensor(), writes);
  } else if (value.isStorage()) {
    add(*value.toStorage().unsafeGetStorageImpl(), writes);
  } else if (value.isTensorList()) {
    for (const at::Tensor& tensor : value.toTensorVector())
      add(tensor, writes);
  } else if (value.isList()) {
    for (const c10::IValue& element : value.toListRef())
      if (element.isTensor()) add(element.toTensor(), writes);
  }
}

}  // namespace spillway
