// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/autocast_mode.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/Tensor.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

namespace spillway {

/// Operators see neither graphs nor autocast nor Python nor functorch while it lives: what runs
/// again is what ran below all of them, and nothing waits for the Python lock.
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

/// The only tensor of its storage, whole and without gaps, so that a result like it has its bytes.
inline bool is_whole(const at::Tensor& tensor) {
  return tensor.storage_offset() == 0 && tensor.is_non_overlapping_and_dense() &&
         tensor.storage().nbytes() == static_cast<std::size_t>(tensor.numel()) * tensor.itemsize();
}

}  // namespace spillway
