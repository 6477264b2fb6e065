// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "emulator/operators/layouts.h"
#include "emulator/operators/positions.h"
#include "emulator/operators/shadows.h"

#include <ATen/ATen.h>
#include <c10/util/FunctionRef.h>

namespace spillway::operators {

/// The memory of a result.
struct ResultMemory {
  void* at;
  size_t bytes;
};

/// The address of a storage's bytes; does not materialize a copy-on-write storage.
void* address(const c10::Storage& storage);

/// A tensor over `storage` with the type, shape and lazy bits of `like`.
at::Tensor shaped(c10::Storage storage, const at::Tensor& like, c10::DispatchKey key);

/// The tensors of one operator call, in the CPU kernel's and in the caller's form.
///
/// `to_host` converts arguments to CPU tensors over the same bytes; `to_device` converts results.
/// In between, `adopt` collects the storages that need device memory, and `allocate` and `fill`
/// supply it. The kernel's own temporaries stay on the host, so a device peak counts outputs alone.
///
/// Threads: confined to the call. Ownership: keeps every argument until destruction.
class Aliases {
 public:
  /// With `shadows`, the CPU kernel works on those instead of the device's bytes, and its results
  /// become shadows.
  explicit Aliases(const char* name, std::shared_ptr<Shadows> shadows = nullptr)
      : name_(name), shadows_(std::move(shadows)) {}

  /// The argument for the CPU kernel: CUDA tensors (alone or in lists) become aliases, a CUDA
  /// device becomes the CPU. Sparse and nested tensors are converted part by part.
  ///
  /// Errors: raises if a CUDA tensor's layout is unknown.
  [[nodiscard]] c10::IValue to_host(const c10::IValue& value);

  /// A result that stays on the CPU.
  void keep_on_host(const at::Tensor& result) { add(result.storage(), result.storage()); }

  /// Collects the storages of `result` that the CPU kernel created.
  ///
  /// Errors: raises if its layout is unknown, because it then has no device form.
  void adopt(const c10::IValue& result);
  /// Collects the arguments that the CPU kernel resized, or whose parts it replaced.
  void adopt_resized();

  /// Allocates memory for everything collected from the current CUDA allocator; false if nothing
  /// was collected.
  ///
  /// Stream: the allocator's. It may have made that stream wait: drain it before `fill`.
  /// Errors: the allocator's; nothing visible to the caller has changed then.
  [[nodiscard]] bool allocate();
  /// Copies the bytes; calls `written` for each new range.
  void fill(c10::function_ref<void(const void* at, size_t bytes)> written);

  /// Copies the collected bytes to the result memory of another run of the same call.
  ///
  /// Errors: raises if their number or sizes differ; nothing is copied then.
  void fill_again(c10::ArrayRef<ResultMemory> targets) const;
  /// The destinations of `fill`, without resized arguments.
  [[nodiscard]] std::vector<ResultMemory> result_memory() const;

  /// The result for the caller: a returned argument is that argument, a view of one keeps its
  /// storage.
  [[nodiscard]] c10::IValue to_device(const c10::IValue& result) const;

 private:
  struct Fresh {
    c10::Storage host;
    c10::Storage resized;  // the argument's own storage, if it was resized
    at::DataPtr memory;
    ResultMemory target{nullptr, 0};
  };

  struct Argument {
    at::Tensor original;
    at::Tensor alias;
    Parts parts;  // the alias's, as passed to the kernel; empty if it is strided
  };

  /// A storage in the CPU kernel's and the caller's form. The device form of a kernel's result is
  /// set by `fill`.
  struct Pair {
    c10::Storage host;
    c10::Storage device;
    const void* began;  // address of the host bytes before the CPU kernel ran
  };

  at::Tensor to_host(const at::Tensor& tensor);
  at::Tensor alias_of(const at::Tensor& tensor, Parts& parts);
  c10::Storage alias_of(const c10::Storage& storage);
  void add(c10::Storage host, c10::Storage device);
  void adopt(const at::Tensor& tensor);
  void write_back(const Argument& argument) const;
  at::Tensor to_device(const at::Tensor& tensor) const;
  Parts to_device(const Parts& parts) const;

  const char* name_;
  std::shared_ptr<Shadows> shadows_;
  c10::SmallVector<Argument, 4> arguments_;
  Positions argument_of_;  // by the alias's implementation
  c10::SmallVector<Fresh, 2> fresh_;
  c10::SmallVector<Pair, 4> storages_;
  Positions by_host_;  // storages_ by either side
  Positions by_device_;
};

}  // namespace spillway::operators
