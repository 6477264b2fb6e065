// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/autocast_mode.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/Tensor.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

namespace spillway {

/// During its lifetime operators of this thread run without autograd, autocast, Python modes and
/// functorch. A recomputation repeats the operator below all of them, and no thread waits for the
/// Python lock.
class InternalOpsGuard {
 private:
  const at::AutoDispatchBelowADInplaceOrView no_graph_;
  const c10::impl::ExcludeDispatchKeyGuard no_modes_{
      c10::autocast_dispatch_keyset |
      c10::DispatchKeySet({c10::DispatchKey::Python,
                           c10::DispatchKey::PythonTLSSnapshot,
                           c10::DispatchKey::VmapMode,
                           c10::DispatchKey::FuncTorchVmapMode,
                           c10::DispatchKey::FuncTorchDynamicLayerFrontMode,
                           c10::DispatchKey::FuncTorchDynamicLayerBackMode})};
};

/// Whether it is its storage's only tensor and covers it completely, so that an equal result has
/// the same bytes.
inline bool is_whole(const at::Tensor& tensor) {
  return tensor.storage_offset() == 0 && tensor.is_non_overlapping_and_dense() &&
         tensor.storage().nbytes() == static_cast<std::size_t>(tensor.numel()) * tensor.itemsize();
}

}  // namespace spillway
