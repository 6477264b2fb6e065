// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/ATen.h>
#include <c10/util/flat_hash_map.h>
#include <cuda.h>

#include <memory>
#include <mutex>

namespace spillway::operators {

/// Host memory that stands for device memory while a stream is captured.
///
/// A captured operator must not touch the device: it runs at each replay. But its caller needs the
/// shapes of its results now, and the operators after it may index by their values. So it computes
/// on shadows: copies of what the device holds, and of what was computed in this capture.
///
/// Threads: safe; a backward pass is captured on autograd's threads.
/// Ownership: the copies live until the capture has ended.
class Shadows {
 public:
  /// The shadow of a storage, copied from the device when it is first asked for.
  c10::Storage of(const c10::Storage& device);
  /// `host` stands for the memory at `device` from now on.
  void put(const void* device, c10::Storage host);

 private:
  std::mutex mutex_;
  ska::flat_hash_map<const void*, c10::Storage> by_address_;
};

/// The shadows of the capture that `stream` takes part in; all streams that are captured at one
/// time share them.
std::shared_ptr<Shadows> shadows(CUstream stream);

/// Frees the shadows where no stream that asked for them is captured any longer.
void drop_shadows_after_capture();

}  // namespace spillway::operators
