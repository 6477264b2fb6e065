// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/ATen.h>
#include <c10/util/flat_hash_map.h>
#include <cuda.h>

#include <memory>
#include <mutex>

namespace spillway::operators {

/// Host memory that represents device memory while a stream is captured.
///
/// A captured operator must not access the device, because it runs at each replay. But its caller
/// needs the shapes of its results now, and later operators may index by their values. It therefore
/// computes on shadows: copies of device memory, and of results of this capture.
///
/// Threads: safe; a backward pass is captured on autograd's threads.
/// Ownership: the copies live until the capture has ended.
class Shadows {
 public:
  /// The shadow of a storage, copied from the device at the first request.
  c10::Storage of(const c10::Storage& device);
  /// `host` represents the memory at `device` from now on.
  void put(const void* device, c10::Storage host);

 private:
  std::mutex mutex_;
  ska::flat_hash_map<const void*, c10::Storage> by_address_;
};

/// The shadows of `stream`'s capture; all streams that capture at one time share them.
std::shared_ptr<Shadows> shadows(CUstream stream);

/// Frees the shadows once no stream that requested them is capturing.
void drop_shadows_after_capture();

}  // namespace spillway::operators
