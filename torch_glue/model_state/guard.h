// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

namespace spillway {

/// Every operator with a tensor that has the guard's dispatch key fetches the managed storages of
/// its arguments first, and keeps them resident while it runs. Operators on lists run in slices
/// (list_slices.h). Views inherit the key, results do not. The key is DispatchKey::Fake, which
/// PyTorch declares for use outside its tree.
/// Errors: c10::Error if another library uses that key.
void install_guard();

/// Gives the tensor the key.
void set_guarded(const at::Tensor& tensor);

/// During its lifetime, the storages given to it are resident, for work on the current streams of
/// their devices.
/// Threads: confined.
class PinnedStorages {
 public:
  PinnedStorages() = default;
  ~PinnedStorages();
  PinnedStorages(const PinnedStorages&) = delete;
  PinnedStorages& operator=(const PinnedStorages&) = delete;

  /// Errors: as ManagedStorage::pin.
  void add(const c10::StorageImpl& storage, bool writes);
  void add(const at::Tensor& tensor, bool writes);
  void add(const c10::IValue& value, bool writes);

 private:
  c10::SmallVector<std::shared_ptr<class ManagedStorage>, 8> pinned_;
};

}  // namespace spillway
