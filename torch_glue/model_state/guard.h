// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "torch_glue/model_state/resident_reason.h"

#include <ATen/core/Tensor.h>

#include <vector>

namespace spillway {

/// Every operator with a tensor that has the guard's dispatch key fetches the managed storages of
/// its arguments first, and keeps them resident while it runs. Operators on lists run in slices
/// (list_slices.h). Views inherit the key, results do not; a tensor that `set_` makes a view gets
/// it. Storages that become part of a sparse or nested tensor, which cannot be guarded, stay
/// resident. The key is DispatchKey::Fake, which PyTorch declares for use outside its tree. Within
/// `__torch_dispatch__` it is a second one, DispatchKey::CustomRNGKeyId.
///
/// Operators that an operator of PyTorch calls are not guarded, because it has no tensors but its
/// arguments. Those that an operator of another library or a Python mode calls are guarded too.
/// Errors: c10::Error if another library uses that key.
void install_guard();

/// The keys that guarded tensors have.
std::vector<c10::DispatchKey> guard_keys();

/// Gives the tensor the keys.
void set_guarded(const at::Tensor& tensor);

/// Gives the tensor the key if its storage is managed.
void guard_alias(const at::Tensor& tensor);

/// For a guarded tensor that is not managed because it is small: work on a side stream may have
/// changed it (side_stream.h), so the current stream waits for that. Errors: c10::Error.
void join_side_stream(const at::Tensor& tensor);

/// Likewise for a storage that is not managed, whatever tensors it has.
void join_side_stream(const c10::Storage& storage);

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
  void add(c10::StorageImpl& storage, bool writes);
  void add(const at::Tensor& tensor, bool writes);
  void add(const c10::IValue& value, bool writes);

  /// Begins the copies of what leaves and of what is used next.
  void copy_ahead();

  /// Keeps them resident after its lifetime too.
  void keep(ResidentReason why);

 private:
  c10::SmallVector<std::shared_ptr<class ManagedStorage>, 8> pinned_;
  class SideStream* side_ = nullptr;  // whose work uses them
};

}  // namespace spillway
