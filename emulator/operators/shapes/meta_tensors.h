// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "emulator/operators/positions.h"

#include <ATen/ATen.h>

namespace spillway::operators {

/// The tensors of one operator call, as PyTorch's Meta kernels see them and as the caller does:
/// shapes without bytes. One meta storage stands for each storage of a device, so that views,
/// results that are an argument, and arguments that get a new size come out as they should.
///
/// Threads: confined to the call.
/// Ownership: holds every tensor that went in until it dies.
class MetaTensors {
 public:
  explicit MetaTensors(const char* name) : name_(name) {}

  /// The argument for the Meta kernel: CUDA tensors (alone or in lists) and a CUDA device become
  /// meta ones, and so do the CPU's tensors, but for numbers.
  ///
  /// Errors: raises where a CUDA tensor is sparse or nested.
  [[nodiscard]] c10::IValue to_meta(const c10::IValue& value);

  /// Of the arguments' storages and of those that the results made, the largest, in bytes. An
  /// argument in a larger storage counts as itself if it has been filled (fill_small).
  [[nodiscard]] size_t largest(c10::ArrayRef<c10::IValue> results) const;

  /// The result for the caller. Storages that the Meta kernel made get memory from the current CUDA
  /// allocator, in the order of the results, with undefined contents. `made` is called for each
  /// result that lies in one of them.
  ///
  /// Errors: the allocator's; raises for results that are not strided.
  [[nodiscard]] c10::IValue to_device(const c10::IValue& result,
                                      c10::function_ref<void(const at::Tensor& made)> made);

  /// Gives the arguments new sizes where the Meta kernel gave their likes some.
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
