// SPDX-License-Identifier: Apache-2.0
#include "torch_glue/saved_tensors/pack_hook.h"

#include "allocator/base/log.h"
#include "allocator/driver/span_log.h"
#include "allocator/lifetime/memory_events.h"
#include "allocator/runtime/runtime.h"
#include "torch_glue/base/streams.h"
#include "torch_glue/saved_storage/pending_sources.h"
#include "torch_glue/saved_storage/skip.h"
#include "torch_glue/saved_tensors/graph_handle.h"
#include "torch_glue/saved_tensors/late_writes.h"
#include "torch_glue/saved_tensors/operator_notes.h"
#include "torch_glue/saved_tensors/recomputed_storage.h"
#include "torch_glue/saved_tensors/relu_mask.h"
#include "torch_glue/saved_tensors/saved_traces.h"
#include "torch_glue/saved_tensors/source.h"
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

/// A tensor without elements, which needs no storage.
at::Tensor empty_like(const Layout& layout, const at::Tensor& tensor) {
  const c10::Storage none(c10::Storage::use_byte_size_t{},
                          0,
                          c10::DataPtr(nullptr, tensor.device()),
                          /*allocator=*/nullptr,
                          /*resizable=*/false);
  return layout.over(none, tensor.unsafeGetTensorImpl()->version_counter());
}

at::Tensor restored(Kept& kept, const SavedVersion&) {
  if (kept.storage.storage() != nullptr) kept.storage.storage()->kept_is_used();
  record_use(kept.tensor);
  return kept.tensor;
}

/// Of an offloaded or recomputed tensor.
template <typename Form>
at::Tensor restored(Form& form, const SavedVersion& version) {
  auto [storage, begin] = form.storage.fetch(form.layout.bytes());
  at::Tensor tensor = form.layout.over(std::move(storage), version.counter(), begin);
  record_use(tensor);
  return tensor;
}

at::Tensor restored(Masked& masked, const SavedVersion&) {
  return masked.mask->get();
}

at::Tensor restored(Wrapped& wrapped, const SavedVersion&) {
  std::vector<at::Tensor> inner;
  for (const auto& handle : wrapped.inner)
    inner.push_back(handle->unpack());
  return wrapped.wrap(inner);
}

}  // namespace

PackHook::PackHook(const RegionOptions* region) : region_(region) {
  Runtime::instance().step().handle_made();
}

PackHook::PackHook(SavedVersion version, SavedForm form, const RecomputeChain& chain)
    : region_(nullptr), version_(std::move(version)), form_(std::move(form)), chain_(chain) {
  Runtime::instance().step().handle_made();
}

PackHook::~PackHook() {
  if (deferred_) LateWrites::cancel_deferred(*this);
  // Before the handle is counted as released: if that ends the step, the host memory must be free.
  // A kept tensor is released last: its memory is freed after the step.
  at::Tensor kept;
  if (auto* const form = std::get_if<Kept>(&form_)) kept = std::move(form->tensor);
  form_.emplace<Kept>();
  note_.reset();
  PendingSources::instance().poll();
  if (Runtime::instance().step().handle_gone()) forget_counted();
}

void PackHook::call_pack_hook(const at::Tensor& tensor) {
  if (defer(tensor)) return;
  pack(tensor);
  if (region_ != nullptr && region_->recompute) {
    // The recipe of a recomputed tensor serves instead.
    const bool recomputed = std::holds_alternative<Recomputed>(form_);
    if (!region_->budget && !recomputed) note_result(tensor, *this);
    SavedTraces::of_thread().add(tensor, *this, region_->budget.has_value());
  }
  if (serves_recipes()) settle_relu_masks(false);
}

bool PackHook::defer(const at::Tensor& tensor) {
  LateWrites* const writes = LateWrites::of(tensor);
  if (writes == nullptr) return false;
  version_ = SavedVersion(tensor);
  form_ = keep(tensor);
  writes->defer(*this);
  deferred_ = true;
  return true;
}

void PackHook::pack_deferred() {
  const at::Tensor tensor = std::get<Kept>(std::exchange(form_, {})).tensor;
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
  if (region_ == nullptr || !choose(tensor)) form_ = keep(tensor);
}

bool PackHook::choose(const at::Tensor& tensor) {
  if (save_parts(tensor)) return true;
  auto reason = why_not_movable(tensor, region_->min_bytes);
  // Offloading it has no benefit, but it need not outlive the cache.
  const bool cached = !reason && is_in_autocast_cache(tensor);
  const bool offloads = !cached && !region_->moves_nothing();
  if (!reason && (offloads || region_->recompute)) {
    const driver::Stream stream = stream_of(current_stream(DeviceId{tensor.device().index()}));
    const auto not_now = capture_skip_reason(stream);
    Examined examined;
    if (region_->recompute && !not_now && leave_to_recompute(tensor, stream, examined)) return true;
    if (offloads && !not_now) {
      offload(tensor, stream, std::move(examined));
      return true;
    }
    if (offloads) reason = not_now;
  }
  if (cached) reason = SkipReason::kParameter;
  if (reason && GraphHandle::is(tensor)) return false;  // what it stands for has been counted
  if (reason) {
    count_skip(region_->tag, *reason, tensor);
  } else {
    count_staying(region_->tag, tensor);
  }
  return false;
}

bool PackHook::save_parts(const at::Tensor& tensor) {
  if (!tensor.unsafeGetTensorImpl()->key_set().has(c10::DispatchKey::Python)) return false;
  if (is_of_parameter(tensor)) return false;
  auto outer = unwrapped(tensor);
  if (!outer) return false;
  Wrapped wrapped{sizes_or_none(tensor), std::move(outer->wrap), {}};
  for (const at::Tensor& inner : outer->inner) {
    wrapped.inner.push_back(make_pooled<PackHook>(region_));
    wrapped.inner.back()->call_pack_hook(inner);
  }
  form_ = std::move(wrapped);
  return true;
}

bool PackHook::leave_to_recompute(const at::Tensor& tensor,
                                  driver::Stream stream,
                                  Examined& examined) {
  const auto known = region_->budget ? SavedStorage::find(tensor.storage()) : nullptr;
  if (known != nullptr) {
    // Storages that a plan keeps or offloads are not examined again.
    chain_ = known->chain();
  } else if (tensor.numel() != 0) {
    note_operators(true);  // from the first tensor on, on threads in the process's region only
    auto storage = RecomputedStorage::of(tensor, *region_, stream, examined);
    chain_ = examined.chain;
    if (storage != nullptr) {
      form_ = Recomputed{Layout(tensor), StorageHandle<SharedStorage>(std::move(storage))};
      return true;
    }
  }
  auto mask = examined.decided ? nullptr : ReluMask::of(tensor, *region_);
  if (mask == nullptr) return false;
  form_ = Masked{at::DimVector(tensor.sizes()), std::move(mask)};
  return true;
}

void PackHook::pack_as_decided(const at::Tensor& tensor,
                               driver::Stream stream,
                               const Decision& decided) {
  version_ = SavedVersion(tensor);
  offload(tensor, stream, {.decided = decided});
}

void PackHook::offload(const at::Tensor& tensor, driver::Stream stream, Examined examined) {
  Layout layout(tensor);
  if (layout.bytes().empty()) {
    form_ = Kept{empty_like(layout, tensor)};
    return;
  }
  const auto device = Runtime::instance().device(DeviceId{tensor.device().index()});
  if (!device.ok()) {
    if (log_enabled()) log("a saved tensor is not offloaded: " + device.status().message());
    count_skip(region_->tag, SkipReason::kNotOnDevice, tensor);
    form_ = keep(tensor);
    return;
  }
  const c10::Storage& whole = tensor.storage();
  if (driver::SpanLog::on()) {
    driver::SpanLog::instance().mark(device.value()->device(), stream);
  }
  StorageHandle handle(SavedStorage::of(whole, *device.value()));
  SavedStorage& storage = *handle.storage();
  if (chain_.length != 0) storage.set_chain(chain_);
  const bool leaves = storage.save({whole,
                                    layout.bytes(),
                                    version_.counter(),
                                    stream,
                                    layout.sizes(),
                                    examined.decided ? &*examined.decided : nullptr},
                                   *region_);
  if (!examined.substitutes.empty()) storage.own_substitutes(std::move(examined.substitutes));
  if (!leaves) {
    form_ = keep(tensor, std::move(handle));
    return;
  }
  if (storage.number() != 0) log_source(tensor, storage.number());
  form_ = Offloaded{std::move(layout), std::move(handle)};
}

Kept PackHook::keep(const at::Tensor& tensor, StorageHandle<SavedStorage> storage) const {
  // Never the variable itself. An output saved by its own node would form a reference cycle. An
  // input's Python object would live as long as the graph, which costs more than another tensor.
  const auto* const impl = tensor.unsafeGetTensorImpl();
  if (!impl->key_set().has(c10::DispatchKey::Python)) {
    return {at::Tensor(impl->shallow_copy_and_detach(version_.counter(), false)),
            std::move(storage)};
  }
  // Itself as autograd keeps it; autograd could not save such an output of its own node either.
  return {detached_or_itself(tensor), std::move(storage)};
}

std::shared_ptr<SavedStorage> PackHook::offloaded() const {
  const auto* const form = std::get_if<Offloaded>(&form_);
  return form != nullptr ? form->storage.storage() : nullptr;
}

std::shared_ptr<SharedStorage> PackHook::decided() const {
  const auto* const kept = std::get_if<Kept>(&form_);
  const auto* const recomputed = std::get_if<Recomputed>(&form_);
  if (kept != nullptr) return kept->storage.storage();
  return recomputed != nullptr ? recomputed->storage.storage() : offloaded();
}

std::shared_ptr<PackHook> PackHook::share() const {
  if (const auto* const masked = std::get_if<Masked>(&form_)) return masked->mask->share();
  const auto* const kept = std::get_if<Kept>(&form_);
  const bool wraps =
      kept != nullptr ? is_wrapper(kept->tensor) : std::holds_alternative<Wrapped>(form_);
  if (wraps) return nullptr;
  auto other = make_pooled<PackHook>(version_, form_, chain_);
  other->note_ = note_;
  return other;
}

std::shared_ptr<PackHook> PackHook::of_kept(const at::Tensor& tensor, std::uint32_t saved) {
  if (is_wrapper(tensor)) return nullptr;
  const c10::VariableVersion& version = tensor.unsafeGetTensorImpl()->version_counter();
  if (version.enabled() && version.current_version() != saved) return nullptr;
  auto hook = make_pooled<PackHook>(nullptr);
  hook->version_ = SavedVersion(tensor);
  hook->form_ = hook->keep(tensor);
  return hook;
}

std::optional<PackHook::Trace> PackHook::trace() const {
  using Weak = c10::weak_intrusive_ptr<c10::TensorImpl>;
  const Weak none(c10::intrusive_ptr<c10::TensorImpl>{});
  if (const auto* const kept = std::get_if<Kept>(&form_)) {
    if (is_wrapper(kept->tensor)) return std::nullopt;
    const Weak tensor(kept->tensor.getIntrusivePtr());
    return Trace{version_, true, tensor, kept->storage.storage(), {}, Layout(kept->tensor), chain_};
  }
  if (const auto* const form = std::get_if<Offloaded>(&form_)) {
    return Trace{version_, false, none, form->storage.storage(), {}, form->layout, chain_};
  }
  if (const auto* const form = std::get_if<Recomputed>(&form_)) {
    return Trace{version_, false, none, {}, form->storage.storage(), form->layout, chain_};
  }
  return std::nullopt;
}

std::shared_ptr<PackHook> PackHook::of_trace(const Trace& trace, std::uint32_t saved) {
  return trace.version.number() == saved ? of_trace(trace, trace.layout) : nullptr;
}

std::shared_ptr<PackHook> PackHook::of_trace(const Trace& trace, const Layout& layout) {
  if (trace.version.changed()) return nullptr;
  if (trace.is_kept) {
    const at::Tensor kept(trace.kept.lock());
    if (!kept.defined()) return nullptr;
    StorageHandle<SavedStorage> storage(trace.storage.lock());
    Kept form{layout.over(kept.storage(), trace.version.counter()), std::move(storage)};
    return make_pooled<PackHook>(trace.version, std::move(form), trace.chain);
  }
  if (auto recomputed = trace.recomputed.lock()) {
    Recomputed form{layout, StorageHandle<SharedStorage>(std::move(recomputed))};
    return make_pooled<PackHook>(trace.version, std::move(form), trace.chain);
  }
  auto offloaded = trace.storage.lock();
  if (offloaded == nullptr) return nullptr;
  StorageHandle<SavedStorage> handle(std::move(offloaded));
  if (!handle.storage()->take_back()) return nullptr;
  Offloaded form{layout, std::move(handle)};
  return make_pooled<PackHook>(trace.version, std::move(form), trace.chain);
}

std::shared_ptr<PackHook> PackHook::of_recomputed(const at::Tensor& tensor,
                                                  std::shared_ptr<RecomputedStorage> recomputed) {
  const RecomputeChain chain = recomputed->chain();
  StorageHandle<SharedStorage> handle(std::move(recomputed));
  return make_pooled<PackHook>(
      SavedVersion(tensor), Recomputed{Layout(tensor), std::move(handle)}, chain);
}

bool PackHook::available() const {
  if (const auto* const kept = std::get_if<Kept>(&form_))
    return !kept->tensor.has_storage() || kept->tensor.storage().nbytes() != 0;
  const auto* const recomputed = std::get_if<Recomputed>(&form_);
  if (recomputed == nullptr) return true;
  const auto storage =
      std::dynamic_pointer_cast<const RecomputedStorage>(recomputed->storage.storage());
  return storage == nullptr || storage->available();
}

at::DimVector PackHook::sizes() const {
  const auto of = [](const auto& form) {
    if constexpr (requires { form.tensor; }) {
      return sizes_or_none(form.tensor);
    } else if constexpr (requires { form.layout; }) {
      return at::DimVector(form.layout.sizes());
    } else {
      return form.sizes;
    }
  };
  return std::visit(of, form_);
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
  return std::visit([this](auto& form) { return restored(form, version_); }, form_);
}

}  // namespace spillway
