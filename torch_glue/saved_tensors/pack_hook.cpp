// SPDX-License-Identifier: Apache-2.0
#include "torch_glue/saved_tensors/pack_hook.h"

#include "allocator/base/log.h"
#include "allocator/lifetime/recorder.h"
#include "allocator/runtime/runtime.h"
#include "torch_glue/saved_tensors/pending_sources.h"
#include "torch_glue/saved_tensors/skip.h"

namespace spillway {

namespace {

/// Autograd saves a tensor, or gets it back.
void record_use(const at::Tensor& tensor) {
  if (!LifetimeRecorder::on() || !tensor.is_cuda() || !tensor.has_storage()) return;
  LifetimeRecorder::instance().used(DeviceId{tensor.device().index()},
                                    driver::DevicePtr(tensor.storage().data()).address());
}

}  // namespace

PackHook::PackHook() {
  Runtime::instance().handle_made();
}

PackHook::~PackHook() {
  if (storage_ != nullptr) storage_->hook_gone(round_);
  // Before the handle is counted off: a step that ends with it finds the host memory given back.
  storage_.reset();
  PendingSources::instance().poll();
  Runtime::instance().handle_gone();
}

void PackHook::call_pack_hook(const at::Tensor& tensor) {
  PendingSources::instance().poll();
  version_ = tensor.unsafeGetTensorImpl()->version_counter();
  if (version_.enabled()) saved_version_ = version_.current_version();
  record_use(tensor);
  const RegionOptions& region = *innermost_region()->moves;
  const auto reason = why_not_movable(tensor, region.min_bytes);
  if (reason) count_skip(region.tag, *reason, tensor);
  if (reason || !move(tensor, region)) keep(tensor);
}

bool PackHook::move(const at::Tensor& tensor, const RegionOptions& region) {
  const auto device = Runtime::instance().device(DeviceId{tensor.device().index()});
  if (!device.ok()) {
    if (log_enabled()) log("a saved tensor stays: " + device.status().message());
    count_skip(region.tag, SkipReason::kNotOnDevice, tensor);
    return false;
  }
  const c10::Storage& storage = tensor.storage();
  storage_ = SavedStorage::of(storage, *device.value());
  round_ = storage_->hook_made();
  if (!storage_->save(storage, version_, region)) return false;
  last_moved(region.tag) = storage_;

  sizes_.assign(tensor.sizes().begin(), tensor.sizes().end());
  strides_.assign(tensor.strides().begin(), tensor.strides().end());
  offset_ = tensor.storage_offset();
  keys_ = tensor.key_set();
  dtype_ = tensor.dtype();
  return true;
}

void PackHook::keep(const at::Tensor& tensor) {
  // Never the variable itself: an output saved by its own node would hold the node for ever.
  const auto* const impl = tensor.unsafeGetTensorImpl();
  kept_ = impl->key_set().has(c10::DispatchKey::Python)
              ? tensor.detach()
              : at::Tensor(impl->shallow_copy_and_detach(version_, false));
}

at::Tensor PackHook::call_unpack_hook() {
  PendingSources::instance().poll();
  Runtime::instance().unpacked();
  check_version();
  if (kept_.defined()) {
    if (storage_ != nullptr) storage_->kept_is_used();
    record_use(kept_);
    return kept_;
  }
  auto impl = c10::make_intrusive<c10::TensorImpl>(storage_->bring_back(round_), keys_, dtype_);
  impl->set_sizes_and_strides(sizes_, strides_, offset_);
  impl->set_version_counter(version_);
  at::Tensor tensor(std::move(impl));
  record_use(tensor);
  return tensor;
}

void PackHook::check_version() const {
  if (!version_.enabled()) return;
  const std::uint32_t now = version_.current_version();
  TORCH_CHECK(
      now == saved_version_,
      "one of the variables needed for gradient computation has been modified by an inplace "
      "operation: a tensor of shape ",
      kept_.defined() ? kept_.sizes() : c10::IntArrayRef(sizes_),
      " is at version ",
      now,
      "; expected version ",
      saved_version_,
      " instead. Hint: torch.autograd.set_detect_anomaly(True) shows the forward operation "
      "whose gradient failed.");
}

}  // namespace spillway
