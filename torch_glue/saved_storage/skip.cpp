// SPDX-License-Identifier: Apache-2.0
#include "torch_glue/saved_storage/skip.h"

#include "allocator/base/mutex.h"
#include "allocator/runtime/runtime.h"
#include "torch_glue/base/compat.h"
#include "torch_glue/saved_storage/running_statistics.h"

#include <ATen/autocast_mode.h>
#include <c10/cuda/CUDAException.h>
#include <c10/util/flat_hash_map.h>
#include <torch/csrc/autograd/functions/accumulate_grad.h>

namespace spillway {
namespace {

constexpr c10::DispatchKeySet kWrapped({c10::DispatchKey::Python,
                                        c10::DispatchKey::PythonTLSSnapshot,
                                        c10::DispatchKey::FuncTorchGradWrapper,
                                        c10::DispatchKey::FuncTorchBatched,
                                        c10::DispatchKey::FuncTorchDynamicLayerBackMode,
                                        c10::DispatchKey::FuncTorchDynamicLayerFrontMode,
                                        c10::DispatchKey::Functionalize,
                                        c10::DispatchKey::ZeroTensor});

bool is_parameter(const at::Tensor& tensor) {
  return tensor.is_leaf() && tensor.requires_grad();
}

/// Not whether it is enabled: it never is within an operator that it has cast for.
bool inside_autocast() {
  const int deeper = at::autocast::increment_nesting();
  at::autocast::decrement_nesting();
  return deeper > 1;
}

/// Whether autocast caches casts of parameters to this dtype now.
bool is_cached(at::ScalarType dtype) {
  return dtype == at::autocast::get_autocast_dtype(at::kCUDA) && inside_autocast() &&
         at::autocast::is_autocast_cache_enabled();
}

/// A parameter in another dtype. Autocast's cache keeps it if autocast created it.
bool is_cast_parameter(const at::Tensor& tensor) {
  const auto& node = tensor.grad_fn();
  if (node == nullptr || node->num_outputs() != 1) return false;
  const auto* const source = node->next_edge(0).function.get();
  return dynamic_cast<const torch::autograd::AccumulateGrad*>(source) != nullptr &&
         node->name() == "ToCopyBackward0";
}

/// Storages counted in the running step. Weak references prevent reuse of their addresses.
class SkipLedger {
 public:
  static SkipLedger& instance() {
    static auto* const ledger = new SkipLedger;
    return *ledger;
  }

  bool is_first(const c10::Storage& storage, std::uint64_t step) {
    const LightLock lock(mutex_);
    if (step != step_) counted_.clear();
    step_ = step;
    c10::StorageImpl* const key = storage.unsafeGetStorageImpl();
    return counted_.emplace(key, storage.getWeakStorageImpl()).second;
  }

  /// Drops the entries of earlier steps.
  void forget(std::uint64_t step) {
    const LightLock lock(mutex_);
    if (step_ < step) counted_.clear();
  }

 private:
  LightMutex mutex_;
  std::uint64_t step_ SPILLWAY_GUARDED_BY(mutex_) = 0;
  ska::flat_hash_map<c10::StorageImpl*, c10::weak_intrusive_ptr<c10::StorageImpl>> counted_
      SPILLWAY_GUARDED_BY(mutex_);
};

bool is_first_in_step(const c10::Storage& storage) {
  return SkipLedger::instance().is_first(storage, Runtime::instance().step().number());
}

}  // namespace

bool is_wrapper(const at::Tensor& tensor) {
  return tensor.unsafeGetTensorImpl()->key_set().has_any(kWrapped);
}

bool is_of_parameter(const at::Tensor& tensor) {
  const at::Tensor* const base = compat::view_base(tensor);
  return is_parameter(tensor) || (base != nullptr && is_parameter(*base));
}

std::optional<SkipReason> why_not_movable(const at::Tensor& tensor, Bytes min_bytes) {
  const auto* const impl = tensor.unsafeGetTensorImpl();
  if (impl->key_set().has_any(kWrapped) || compat::has_names(*impl)) {
    return SkipReason::kSubclass;
  }
  if (!tensor.is_cuda()) return SkipReason::kNotOnDevice;
  // Of model state, only what autocast's cache keeps can be recomputed.
  if (impl->key_set().has(compat::kGuardKey) && !is_in_autocast_cache(tensor))
    return SkipReason::kParameter;
  if (impl->layout() != at::kStrided || tensor.is_quantized() || tensor.is_nested()) {
    return SkipReason::kNotStrided;
  }
  if (!impl->has_storage()) return SkipReason::kNotOnDevice;
  const c10::Storage& storage = impl->storage();
  if (storage.nbytes() < min_bytes.count() || storage.nbytes() == 0) return SkipReason::kTiny;
  if (storage.data() == nullptr) return SkipReason::kNotOnDevice;
  if (is_of_parameter(tensor)) return SkipReason::kParameter;
  if (is_running_statistic(tensor)) return SkipReason::kReferencedElsewhere;
  return std::nullopt;
}

bool autocast_keeps_cast(const at::Tensor& source, at::ScalarType to) {
  return is_parameter(source) && !source.is_view() && source.scalar_type() == at::kFloat &&
         is_cached(to);
}

bool is_in_autocast_cache(const at::Tensor& tensor) {
  if (!is_cached(tensor.scalar_type())) return false;
  const at::Tensor* const base = compat::view_base(tensor);
  return is_cast_parameter(tensor) || (base != nullptr && is_cast_parameter(*base));
}

std::optional<SkipReason> capture_skip_reason(driver::Stream stream) {
  cudaStreamCaptureStatus capture = cudaStreamCaptureStatusNone;
  const cudaError_t error = cudaStreamIsCapturing(stream.handle(), &capture);
  if (error != cudaSuccess) C10_CUDA_CHECK(error);
  if (capture == cudaStreamCaptureStatusNone) return std::nullopt;
  return SkipReason::kCapturing;
}

void count_staying(TagId tag, const at::Tensor& tensor) {
  if (is_first_in_step(tensor.storage())) {
    Runtime::instance().step().count_kept(tag, Bytes{tensor.storage().nbytes()});
  }
}

void count_skip(TagId tag, SkipReason reason, const at::Tensor& tensor) {
  Runtime& runtime = Runtime::instance();
  const bool has_storage = reason != SkipReason::kSubclass && reason != SkipReason::kNotStrided &&
                           tensor.unsafeGetTensorImpl()->has_storage();
  if (!has_storage) return runtime.step().skipped(tag, reason, Bytes{});
  if (is_first_in_step(tensor.storage())) {
    runtime.step().skipped(tag, reason, Bytes{tensor.storage().nbytes()});
  }
}

void forget_counted() {
  SkipLedger::instance().forget(Runtime::instance().step().number());
}

}  // namespace spillway
