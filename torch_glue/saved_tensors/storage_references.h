// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "allocator/driver/handles.h"
#include "torch_glue/base/compat.h"
#include "torch_glue/saved_tensors/pending_sources.h"

#include <c10/core/Storage.h>
#include <c10/util/intrusive_ptr.h>

#include <cstdint>

namespace spillway {

/// Whether the storage is referenced other than by `original` itself and a copy in progress.
inline bool referenced_elsewhere(const c10::intrusive_ptr<c10::StorageImpl>& original) {
  const size_t own = PendingSources::instance().holds(original.get()) ? 2 : 1;
  return compat::holders(original, *original) > own;
}

inline std::uint64_t address_of(const c10::Storage& storage) {
  return driver::DevicePtr(storage.data()).address();
}

}  // namespace spillway
