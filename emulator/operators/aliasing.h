// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "emulator/operators/layouts.h"
#include "emulator/operators/positions.h"
#include "emulator/operators/shadows.h"

#include <ATen/ATen.h>
#include <c10/util/FunctionRef.h>

namespace spillway::operators {

/// Memory that a result lies in.
struct Place {
  void* at;
  size_t bytes;
};

/// The address of a storage's bytes; asking for it does not materialise a copy-on-write storage.
void* address(const c10::Storage& storage);

/// A tensor over `storage` with the type, shape and lazy bits of `like`.
at::Tensor shaped(c10::Storage storage, const at::Tensor& like, c10::DispatchKey key);

/// The tensors of one operator call, as the CPU kernel sees them and as the caller does.
///
/// Arguments go in through `to_host`, which gives CPU tensors over the same bytes; what the CPU
/// kernel made comes out through `to_device`. In between, `adopt` collects what needs device
/// memory, and `allocate` and `fill` give it some: the kernel's own temporaries stay on the host,
/// so a device peak counts outputs alone.
///
/// Threads: confined to the call.
/// Ownership: holds every tensor that went in until it dies.
class Aliases {
 public:
  /// With `shadows`, the CPU kernel works on those instead of the device's bytes, and what it made
  /// becomes a shadow.
  explicit Aliases(const char* name, std::shared_ptr<Shadows> shadows = nullptr)
      : name_(name), shadows_(std::move(shadows)) {}

  /// The argument for the CPU kernel: CUDA tensors (alone or in lists) become aliases, a CUDA
  /// device becomes the CPU. Sparse and nested tensors are taken apart and put together again.
  ///
  /// Errors: raises where a CUDA tensor's layout is unknown.
  [[nodiscard]] c10::IValue to_host(const c10::IValue& value);

  /// A result that is on the CPU for the caller too.
  void keep_on_host(const at::Tensor& result) { add(result.storage(), result.storage()); }

  /// Collects the storages of `result` that the CPU kernel made.
  ///
  /// Errors: raises where its layout is unknown: there is no device form of it.
  void adopt(const c10::IValue& result);
  /// Collects the arguments to which the CPU kernel gave a new size, or other parts.
  void adopt_resized();

  /// Gives everything collected memory from the current CUDA allocator; false if there was nothing
  /// to do.
  ///
  /// Stream: the allocator's. It may have made that stream wait: drain it before `fill`.
  /// Errors: the allocator's; nothing that the caller can see has changed then.
  [[nodiscard]] bool allocate();
  /// Copies the bytes over; `written` hears of each new range.
  void fill(c10::function_ref<void(const void* at, size_t bytes)> written);

  /// Copies the bytes of what was collected to places that another run of the same call gave.
  ///
  /// Errors: raises where there are not as many, or not of the same size; nothing is copied then.
  void fill_again(c10::ArrayRef<Place> places) const;
  /// Where `fill` put what the CPU kernel made, arguments with a new size left out.
  [[nodiscard]] std::vector<Place> places() const;

  /// What the caller gets: an argument that was fetched is that argument, a view of one keeps its
  /// storage.
  [[nodiscard]] c10::IValue to_device(const c10::IValue& result) const;

 private:
  struct Fresh {
    c10::Storage host;
    c10::Storage resized;  // the argument's own storage, where it was given a new size
    at::DataPtr memory;
    Place place{nullptr, 0};
  };

  struct Argument {
    at::Tensor original;
    at::Tensor alias;
    Parts parts;  // the alias's, as they were given to the kernel; empty where it is strided
  };

  /// A storage as the CPU kernel sees it, and the caller's: no device form before `fill` gives one
  /// to what the kernel made.
  struct Pair {
    c10::Storage host;
    c10::Storage device;
    const void* began;  // where the host's bytes lay before the CPU kernel ran
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
