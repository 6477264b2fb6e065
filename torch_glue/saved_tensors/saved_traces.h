// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "torch_glue/saved_tensors/pack_hook.h"

#include <ATen/core/Tensor.h>
#include <c10/util/SmallVector.h>

#include <memory>
#include <unordered_map>

namespace spillway {

struct PassedTensor;

/// The tensors that a thread has saved, by their storages: how an operand that some node saves is
/// obtained. It extends no lifetime. Threads: confined.
class SavedTraces {
 public:
  static SavedTraces& of_thread();

  /// Adds a tensor that has been packed.
  void add(const at::Tensor& tensor, const PackHook& packed);

  /// A handle of the operand, if a saved tensor covers its bytes at its version; null otherwise.
  [[nodiscard]] std::shared_ptr<PackHook> find(const PassedTensor& operand) const;

 private:
  using OfStorage = c10::SmallVector<PackHook::Trace, 1>;

  void drop_expired();

  std::unordered_map<const c10::StorageImpl*, OfStorage> traces_;
  std::size_t full_ = 256;  // size at which expired entries are dropped
};

}  // namespace spillway
