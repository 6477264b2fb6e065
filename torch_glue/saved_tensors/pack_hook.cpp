// SPDX-License-Identifier: Apache-2.0
#include "torch_glue/saved_tensors/pack_hook.h"

#include "allocator/base/log.h"
#include "allocator/driver/span_log.h"
#include "allocator/lifetime/memory_events.h"
#include "allocator/runtime/runtime.h"
#include "torch_glue/base/streams.h"
#include "torch_glue/recompute/operator_notes.h"
#include "torch_glue/recompute/recomputed_storage.h"
#include "torch_glue/recompute/relu_mask.h"
#include "torch_glue/recompute/results_elsewhere.h"
#include "torch_glue/saved_tensors/late_writes.h"
#include "torch_glue/saved_tensors/pending_sources.h"
#include "torch_glue/saved_tensors/skip.h"
#include "torch_glue/saved_tensors/source.h"
#include "torch_glue/saved_tensors/tensor_names.h"
#include "torch_glue/saved_tensors/wrapped.h"

#include <utility>

namespace spillway {

namespace {

/// Records that autograd saves or unpacks a tensor.
void record_use(const at::Tensor& tensor) {
  if (!MemoryEvents::on() || !tensor.is_cuda() || !tensor.has_storage()) return;
  MemoryEvents::used(DeviceId{tensor.device().index()},
                     driver::DevicePtr(tensor.storage().data()).address());
}

}  // namespace

/// The tensors that one wraps, each with a hook of its own.
struct PackHook::Parts {
  at::DimVector sizes;  // of the outer tensor
  std::function<at::Tensor(const std::vector<at::Tensor>&)> wrap;
  std::vector<std::unique_ptr<PackHook>> hooks;
};

PackHook::PackHook(const RegionOptions* region) : region_(region) {
  Runtime::instance().step().handle_made();
}

PackHook::~PackHook() {
  if (deferred_) LateWrites::cancel_deferred(*this);
  if (storage_ != nullptr) storage_->remove_hook(round_);
  if (recomputed_ != nullptr) recomputed_->remove_hook(round_);
  // Before the handle is counted as released: if that ends the step, the host memory must be free.
  storage_.reset();
  recomputed_.reset();
  mask_.reset();
  note_.reset();
  parts_.reset();
  PendingSources::instance().poll();
  if (Runtime::instance().step().handle_gone()) forget_counted();
}

void PackHook::call_pack_hook(const at::Tensor& tensor) {
  if (defer(tensor)) return;
  pack(tensor);
  if (region_ != nullptr && region_->recompute && !region_->budget) note_result(tensor, *this);
  if (serves_recipes()) settle_relu_masks(false);
}

bool PackHook::defer(const at::Tensor& tensor) {
  LateWrites* const writes = LateWrites::of(tensor);
  if (writes == nullptr) return false;
  version_ = SavedVersion(tensor);
  keep(tensor);
  writes->defer(*this);
  deferred_ = true;
  return true;
}

void PackHook::pack_deferred() {
  const at::Tensor tensor = std::exchange(kept_, {});
  const SavedVersion saved = version_;
  deferred_ = false;
  call_pack_hook(tensor);
  version_ = saved;  // an in-place change after the save must be detected
}

void PackHook::pack(const at::Tensor& tensor) {
  PendingSources::instance().poll();
  version_ = SavedVersion(tensor);
  if (serves_recipes()) note_ = current_note();
  record_use(tensor);
  if (region_ == nullptr) return keep(tensor);
  if (move_parts(tensor)) return;
  auto reason = why_not_movable(tensor, region_->min_bytes);
  // Offloading it has no benefit, but it need not outlive the cache.
  const bool cached = !reason && is_in_autocast_cache(tensor);
  if (cached && !region_->recompute) reason = SkipReason::kParameter;
  if (reason) {
    count_skip(region_->tag, *reason, tensor);
    return keep(tensor);
  }
  const bool stays = region_->moves_nothing();
  if (stays && !region_->recompute) {
    count_staying(region_->tag, tensor);
    return keep(tensor);
  }
  const driver::Stream stream = stream_of(current_stream(DeviceId{tensor.device().index()}));
  const auto not_now = capture_skip_reason(stream);
  std::optional<Decision> decided;
  if (region_->recompute && !not_now) {
    if (leave_to_recompute(tensor, stream, decided)) return;
    if (!decided) mask_ = ReluMask::of(tensor, *region_);
    if (mask_ != nullptr) {
      layout_.emplace(tensor);
      return;
    }
  }
  if (cached) {
    count_skip(region_->tag, SkipReason::kParameter, tensor);
    return keep(tensor);
  }
  if (stays) {
    count_staying(region_->tag, tensor);
    return keep(tensor);
  }
  if (not_now) {
    count_skip(region_->tag, *not_now, tensor);
    return keep(tensor);
  }
  if (!offload(tensor, stream, decided)) keep(tensor);
}

bool PackHook::move_parts(const at::Tensor& tensor) {
  if (!tensor.unsafeGetTensorImpl()->key_set().has(c10::DispatchKey::Python)) return false;
  if (is_of_parameter(tensor)) return false;
  auto wrapped = unwrapped(tensor);
  if (!wrapped) return false;
  parts_ = std::make_unique<Parts>(Parts{sizes_or_none(tensor), std::move(wrapped->wrap), {}});
  for (const at::Tensor& inner : wrapped->inner) {
    parts_->hooks.push_back(std::make_unique<PackHook>(region_));
    parts_->hooks.back()->call_pack_hook(inner);
  }
  return true;
}

bool PackHook::leave_to_recompute(const at::Tensor& tensor,
                                  driver::Stream stream,
                                  std::optional<Decision>& decided) {
  if (tensor.numel() == 0) return false;
  // Storages that a plan keeps or offloads are not examined again.
  if (region_->budget && SavedStorage::knows(tensor.storage(), chain_)) return false;
  note_operators(
      true);  // from the first tensor on, on threads that are in the process's region only
  recomputed_ = RecomputedStorage::of(tensor, *region_, stream, decided, chain_);
  if (recomputed_ == nullptr) return false;
  recomputed_->add_hook(round_);
  layout_.emplace(tensor);
  return true;
}

std::shared_ptr<PackHook> PackHook::share() const {
  if (is_wrapped()) return nullptr;
  if (mask_ != nullptr) return mask_->share();
  auto other = make_pooled<PackHook>(nullptr);
  other->version_ = version_;
  other->kept_ = kept_;
  other->storage_ = storage_;
  other->recomputed_ = recomputed_;
  other->note_ = note_;
  other->layout_ = layout_;
  other->chain_ = chain_;
  if (storage_ != nullptr) storage_->add_hook(other->round_);
  if (recomputed_ != nullptr) recomputed_->add_hook(other->round_);
  return other;
}

std::shared_ptr<PackHook> PackHook::of_kept(const at::Tensor& tensor, std::uint32_t saved) {
  if (is_wrapper(tensor)) return nullptr;
  const c10::VariableVersion& version = tensor.unsafeGetTensorImpl()->version_counter();
  if (version.enabled() && version.current_version() != saved) return nullptr;
  auto hook = make_pooled<PackHook>(nullptr);
  hook->version_ = SavedVersion(tensor);
  hook->keep(tensor);
  return hook;
}

std::optional<PackHook::Trace> PackHook::trace() const {
  using Kept = c10::weak_intrusive_ptr<c10::TensorImpl>;
  if (is_wrapped()) return std::nullopt;
  if (kept_.defined()) return Trace{version_, Kept(kept_.getIntrusivePtr()), {}, {}};
  if (storage_ == nullptr) return std::nullopt;
  return Trace{version_, Kept(at::Tensor().getIntrusivePtr()), storage_, *layout_};
}

std::shared_ptr<PackHook> PackHook::of_trace(const Trace& trace, std::uint32_t saved) {
  if (trace.version.changed() || trace.version.number() != saved) return nullptr;
  if (const at::Tensor kept(trace.kept.lock()); kept.defined()) return of_kept(kept, saved);
  auto storage = trace.offloaded.lock();
  if (storage == nullptr) return nullptr;
  auto hook = make_pooled<PackHook>(nullptr);
  hook->version_ = trace.version;
  hook->layout_ = trace.layout;
  hook->storage_ = std::move(storage);
  hook->storage_->add_hook(hook->round_);
  return hook;
}

std::shared_ptr<PackHook> PackHook::of_recomputed(const at::Tensor& tensor,
                                                  std::shared_ptr<RecomputedStorage> recomputed) {
  auto hook = make_pooled<PackHook>(nullptr);
  hook->version_ = SavedVersion(tensor);
  hook->layout_.emplace(tensor);
  hook->recomputed_ = std::move(recomputed);
  hook->recomputed_->add_hook(hook->round_);
  return hook;
}

void PackHook::pack_as_decided(const at::Tensor& tensor,
                               driver::Stream stream,
                               const Decision& decided) {
  version_ = SavedVersion(tensor);
  if (!offload(tensor, stream, decided)) keep(tensor);
}

bool PackHook::is_wrapped() const {
  return parts_ != nullptr || (kept_.defined() && is_wrapper(kept_));
}

int PackHook::chain() const {
  return recomputed_ != nullptr ? recomputed_->chain() : chain_;
}

bool PackHook::offload(const at::Tensor& tensor,
                       driver::Stream stream,
                       const std::optional<Decision>& decided) {
  layout_.emplace(tensor);
  if (layout_->bytes().empty()) {
    // An empty tensor: nothing to offload, and no reason to keep its storage.
    kept_ = layout_->over(c10::Storage(c10::Storage::use_byte_size_t{},
                                       0,
                                       c10::DataPtr(nullptr, tensor.device()),
                                       /*allocator=*/nullptr,
                                       /*resizable=*/false),
                          version_.counter());
    return true;
  }
  const auto device = Runtime::instance().device(DeviceId{tensor.device().index()});
  if (!device.ok()) {
    if (log_enabled()) log("a saved tensor is not offloaded: " + device.status().message());
    count_skip(region_->tag, SkipReason::kNotOnDevice, tensor);
    return false;
  }
  const c10::Storage& storage = tensor.storage();
  if (driver::SpanLog::on()) {
    driver::SpanLog::instance().mark(device.value()->device(), stream);
  }
  storage_ = SavedStorage::of(storage, *device.value());
  if (chain_ != 0) storage_->set_recompute_depth(chain_);
  const bool leaves = storage_->save({storage,
                                      layout_->bytes(),
                                      version_.counter(),
                                      stream,
                                      layout_->sizes(),
                                      decided ? &*decided : nullptr},
                                     *region_,
                                     round_);
  if (leaves && storage_->number() != 0) log_source(tensor, storage_->number());
  return leaves;
}

void PackHook::keep(const at::Tensor& tensor) {
  // Never the variable itself. An output saved by its own node would form a reference cycle. An
  // input's Python object would live as long as the graph, which costs more than another tensor.
  const auto* const impl = tensor.unsafeGetTensorImpl();
  if (!impl->key_set().has(c10::DispatchKey::Python)) {
    kept_ = at::Tensor(impl->shallow_copy_and_detach(version_.counter(), false));
    return;
  }
  // Itself as autograd keeps it; autograd could not save such an output of its own node either.
  kept_ = detached_or_itself(tensor);
}

at::DimVector PackHook::sizes() const {
  if (parts_ != nullptr) return parts_->sizes;
  return kept_.defined() ? sizes_or_none(kept_) : at::DimVector(layout_->sizes());
}

at::Tensor PackHook::call_unpack_hook() {
  try {
    return unpack();
  } catch (ChangedTensorError& error) {
    add_name(error);  // here, where no lock is held
    throw;
  }
}

at::Tensor PackHook::unpack() {
  PendingSources::instance().poll();
  Runtime::instance().step().unpacked();
  if (version_.changed()) version_.raise(sizes());
  if (parts_ != nullptr) {
    std::vector<at::Tensor> inner;
    for (const auto& hook : parts_->hooks)
      inner.push_back(hook->unpack());
    return parts_->wrap(inner);
  }
  if (mask_ != nullptr) return mask_->get();
  if (kept_.defined()) {
    if (storage_ != nullptr) storage_->kept_is_used();
    record_use(kept_);
    return kept_;
  }
  if (recomputed_ != nullptr) {
    at::Tensor tensor = layout_->over(recomputed_->get(round_), version_.counter());
    record_use(tensor);
    return tensor;
  }
  SavedStorage::OnDevice back = storage_->fetch(round_, layout_->bytes());
  at::Tensor tensor = layout_->over(std::move(back.storage), version_.counter(), back.begin);
  record_use(tensor);
  return tensor;
}

}  // namespace spillway
