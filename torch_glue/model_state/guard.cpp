// SPDX-License-Identifier: Apache-2.0
#include "torch_glue/model_state/guard.h"

#include "torch_glue/base/compat.h"
#include "torch_glue/base/streams.h"
#include "torch_glue/cuda_allocator/cuda_allocator.h"
#include "torch_glue/cuda_allocator/side_stream.h"
#include "torch_glue/model_state/guarded_operator.h"
#include "torch_glue/model_state/list_slices.h"
#include "torch_glue/model_state/managed_storages.h"
#include "torch_glue/model_state/running_operator.h"
#include "torch_glue/saved_storage/skip.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/library.h>

namespace spillway {
namespace {

constexpr auto kKey = compat::kGuardKey;
/// Python code that implements an operator (`__torch_dispatch__`) runs without the keys above
/// DispatchKey::Python, of which kKey is one. The tensors that it uses are guarded by this one,
/// which is below, and which PyTorch uses for no tensors.
constexpr auto kKeyInPython = c10::DispatchKey::CustomRNGKeyId;
constexpr c10::DispatchKeySet kKeys({kKey, kKeyInPython});

/// An operator without the guard's keys for the operators that it calls.
void run_unguarded(const c10::OperatorHandle& op, c10::DispatchKeySet below, c10::Stack* stack) {
  const c10::impl::ExcludeDispatchKeyGuard guard(kKeys);
  op.redispatchBoxed(below, stack);
}

/// The slot of its identity among what belongs to the parameter: the last one.
constexpr int kSlotOfCast = -1;

/// Manages what autocast keeps of all parameters until it ends.
void manage_cast(const at::Tensor& source, const at::Tensor& cast) {
  if (ManagedStorage::of(source) != nullptr && autocast_keeps_cast(source, cast.scalar_type()))
    ManagedStorages::instance().manage(cast, ModelClass::kCast, source, kSlotOfCast);
}

/// `_lazy_clone` shares memory until a write, which the storage's owner cannot follow.
at::Tensor clone_at_once(const at::Tensor& tensor) {
  return tensor.clone();
}

}  // namespace

void run_below_guard(const GuardedOperator& known,
                     const c10::OperatorHandle& op,
                     c10::DispatchKeySet keys,
                     c10::Stack* stack) {
  const auto top = keys.has(kKey) ? kKey : kKeyInPython;
  const auto below = (keys & c10::DispatchKeySet(c10::DispatchKeySet::FULL_AFTER, top)) - kKeys;
  if (known.of_pytorch() && !keys.has(c10::DispatchKey::Python)) {
    run_unguarded(op, below, stack);
  } else {
    op.redispatchBoxed(below, stack);
  }
}

namespace {

void guard(const c10::OperatorHandle& op, c10::DispatchKeySet keys, c10::Stack* stack) {
  if (ManagedStorages::instance().chaotic()) ManagedStorages::instance().make_chaos();
  const GuardedOperator& known = GuardedOperator::of(op);
  if (known.takes_lists() && run_in_slices(known, op, keys, stack)) return;
  if (known.detaches()) return run_below_guard(known, op, keys, stack);
  const std::size_t first = stack->size() - known.arguments();
  const RunningOperator running(op, *stack, first);
  PinnedStorages pinned;
  for (const std::size_t i : known.tensors())
    pinned.add((*stack)[first + i], known.writes(i));
  if (known.wraps()) pinned.keep(ResidentReason::kWrapped);
  pinned.copy_ahead();
  const at::Tensor source = known.casts() ? (*stack)[first].toTensor() : at::Tensor();
  run_below_guard(known, op, keys, stack);
  if (source.defined()) manage_cast(source, stack->back().toTensor());
  if (known.sets_storage()) guard_alias(stack->back().toTensor());
}

/// PyTorch counts kKeyInPython among the backends: a kernel for all backends, as `copy_` has one,
/// would run in place of the fallback.
void guard_operators_of_all_backends() {
  using c10::DispatchKey;
  static auto* const library =
      new torch::Library(torch::Library::IMPL, "aten", kKeyInPython, __FILE__, __LINE__);
  auto& dispatcher = c10::Dispatcher::singleton();
  for (const c10::OperatorName& name : dispatcher.getAllOpNames()) {
    if (!name.name.starts_with("aten::")) continue;
    const auto op = dispatcher.findSchema(name);
    const bool for_all =
        op && (op->hasKernelForDispatchKey(DispatchKey::CompositeExplicitAutograd) ||
               op->hasKernelForDispatchKey(DispatchKey::CompositeExplicitAutogradNonFunctional));
    if (!for_all) continue;
    library->impl(c10::toString(name).c_str(), torch::CppFunction::makeFromBoxedFunction<&guard>());
  }
}

}  // namespace

void install_guard() {
  static auto* const library =
      new torch::Library(torch::Library::IMPL, "_", kKey, __FILE__, __LINE__);
  static const bool once = [] {
    library->fallback(torch::CppFunction::makeFromBoxedFunction<&guard>());
    static auto* const in_python =
        new torch::Library(torch::Library::IMPL, "_", kKeyInPython, __FILE__, __LINE__);
    in_python->fallback(torch::CppFunction::makeFromBoxedFunction<&guard>());
    static auto* const special =
        new torch::Library(torch::Library::IMPL, "aten", kKey, __FILE__, __LINE__);
    special->impl("_lazy_clone", &clone_at_once);
    guard_operators_of_all_backends();
    return true;
  }();
  static_cast<void>(once);
}

std::vector<c10::DispatchKey> guard_keys() {
  return {kKey, kKeyInPython};
}

void set_guarded(const at::Tensor& tensor) {
  compat::add_key(*tensor.unsafeGetTensorImpl(), kKey);
  compat::add_key(*tensor.unsafeGetTensorImpl(), kKeyInPython);
}

void guard_alias(const at::Tensor& tensor) {
  if (ManagedStorage::of(tensor) != nullptr) set_guarded(tensor);
}

void join_side_stream(const at::Tensor& tensor) {
  const bool guarded = tensor.is_cuda() && tensor.key_set().has(kKey);
  if (guarded && ManagedStorage::of(tensor) == nullptr)
    SideStream::join(current_stream(DeviceId{tensor.device().index()}));
}

void join_side_stream(const c10::Storage& storage) {
  const bool is_small = SideStream::exists() && storage.device().is_cuda() &&
                        ManagedStorage::of(*storage.unsafeGetStorageImpl()) == nullptr;
  if (is_small) SideStream::join(current_stream(DeviceId{storage.device().index()}));
}

PinnedStorages::~PinnedStorages() {
  if (side_ != nullptr) {
    const driver::Fence work = side_->promise();
    for (const auto& storage : pinned_)
      storage->used_beside(work);
  }
  for (const auto& storage : pinned_)
    storage->unpin();
}

void PinnedStorages::copy_ahead() {
  if (pinned_.empty()) return;
  DeviceRuntime& device = pinned_.front()->device();
  const auto stream = current_stream(device.device().id);
  // A replay would copy again.
  if (SpillwayAllocator::instance().captures(stream.stream())) return;
  ManagedStorages::instance().copy_ahead(device, SideStream::home_of(stream));
}

void PinnedStorages::keep(ResidentReason why) {
  for (const auto& storage : pinned_)
    storage->keep(why);
}

void PinnedStorages::add(c10::StorageImpl& storage, bool writes) {
  ManagedStorage* const managed = ManagedStorage::of(storage);
  if (managed == nullptr) return;
  auto owner = managed->shared_from_this();
  const bool may_write = writes || managed->model_class() == ModelClass::kBuffer;
  const auto stream = current_stream(managed->device().device().id);
  managed->pin(storage, stream, may_write);
  if (SideStream* const side = SideStream::entered_as(stream.stream())) side_ = side;
  pinned_.push_back(std::move(owner));
  ManagedStorages::instance().used(*managed, may_write);
}

void PinnedStorages::add(const at::Tensor& tensor, bool writes) {
  if (!tensor.defined() || !tensor.has_storage()) return;
  if (SideStream::exists()) join_side_stream(tensor);
  add(*tensor.storage().unsafeGetStorageImpl(), writes);
}

void PinnedStorages::add(const c10::IValue& value, bool writes) {
  if (value.isTensor()) {
    add(value.toTensor(), writes);
  } else if (value.isStorage()) {
    join_side_stream(value.toStorage());
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
