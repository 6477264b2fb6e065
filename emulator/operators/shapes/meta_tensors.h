// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "emulator/operators/positions.h"

#include <ATen/ATen.h>

namespace spillway::operators {

/// The tensors of one operator call, in the form of PyTorch's Meta kernels and in the caller's:
/// shapes without bytes. One meta storage represents each storage of a device, so that views,
/// returned arguments and resized arguments are mapped correctly.
///
/// Threads: confined to the call. Ownership: keeps every argument until destruction.
class MetaTensors {
 public:
  explicit MetaTensors(const char* name) : name_(name) {}

  /// The argument for the Meta kernel: CUDA tensors (alone or in lists), a CUDA device, and CPU
  /// tensors except numbers become meta ones.
  ///
  /// Errors: raises if a CUDA tensor is sparse or nested.
  [[nodiscard]] c10::IValue to_meta(const c10::IValue& value);

  /// The largest storage of arguments and results, in bytes. An argument in a larger storage counts
  /// by its own size if it has been filled (fill_small).
  [[nodiscard]] size_t largest(c10::ArrayRef<c10::IValue> results) const;

  /// The result for the caller. Storages that the Meta kernel created get memory from the current
  /// CUDA allocator, in the order of the results, with undefined contents. Calls `made` for each
  /// result in such a storage.
  ///
  /// Errors: the allocator's; raises for results that are not strided.
  [[nodiscard]] c10::IValue to_device(const c10::IValue& result,
                                      c10::function_ref<void(const at::Tensor& made)> made);

  /// Resizes the arguments whose counterparts the Meta kernel resized.
  ///
  /// Errors: the allocator's; nothing has changed then.
  void resize_arguments();

 private:
  struct Argument {
    at::Tensor original;
    at::Tensor meta;
  };

  struct Pair {
    c10::Storage meta;
    c10::Storage device;
    bool is_argument;
  };

  at::Tensor to_meta(const at::Tensor& tensor);
  const c10::Storage& meta_of(const c10::Storage& storage);
  at::Tensor to_device(const at::Tensor& tensor,
                       c10::function_ref<void(const at::Tensor& made)> made);
  void add(Pair pair);

  const char* name_;
  c10::SmallVector<Argument, 4> arguments_;
  Positions argument_of_;  // by the meta tensor's implementation
  c10::SmallVector<Pair, 4> storages_;
  Positions by_meta_;  // storages_ by either side
  Positions by_device_;
};

}  // namespace spillway::operators
