// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "allocator/runtime/device_runtime.h"
#include "torch_glue/saved_tensors/byte_ranges.h"

#include <c10/core/TensorImpl.h>
#include <c10/util/SmallVector.h>

namespace spillway {

/// The bytes of one storage that are on the host: those that saved tensors cover, each once.
///
/// Threads: confined; the storage's lock is held. Ownership: of the host memory; borrows the
/// device.
class HostCopy {
 public:
  HostCopy(DeviceRuntime& device, driver::DevicePtr storage, Bytes size)
      : device_(device), storage_(storage), size_(size) {}

  /// Ends the host memory (invariant 4 in docs/invariants.md).
  ~HostCopy();
  HostCopy(const HostCopy&) = delete;
  HostCopy& operator=(const HostCopy&) = delete;

  /// A tensor at `version` covers `wanted`: begins copying what of it is not there yet as it is
  /// now. Gives the bytes that are copied.
  ///
  /// Views may have counters of their own (unsafe_chunk, .data), so only the same counter at the
  /// same version shows that bytes which are there still are what is saved now. Otherwise they are
  /// taken again: the tensors saved earlier either see their own part unchanged or are stopped by
  /// their own counter.
  ///
  /// Stream: after what `producer` has been given; no wait. Errors: kOutOfHostMemory, kDriver;
  /// nothing has changed then.
  Result<Bytes> take(const ByteRange& wanted,
                     const c10::VariableVersion& version,
                     driver::Stream producer);

  [[nodiscard]] bool empty() const { return pieces_.empty(); }

  /// What it holds.
  [[nodiscard]] Bytes size() const;
  /// From its first byte to its last. Requires: not empty().
  [[nodiscard]] ByteRange extent() const;

  /// Whether the storage's block in our heap knows of the copies. Requires: not empty().
  [[nodiscard]] bool heap_knows() const { return pieces_.back().stash.in_heap; }

  /// The last copy out that was begun; those before have passed when it has. Requires: not empty().
  [[nodiscard]] driver::Fence last_written() const { return last_written_; }

  /// Begins copying everything to a block that holds the storage's bytes from `begin` on; as
  /// Residency::fetch.
  Result<driver::Fence> fetch(driver::DevicePtr destination,
                              Bytes begin,
                              driver::Stream consumer,
                              CopyPriority haste);

  /// What was fetched has left the device again, or is there; only the accounting change.
  void set_offloaded(bool offloaded);

  /// The streams that filled the storage wait for the copies that read it.
  Status make_producers_wait() const;

 private:
  struct Piece {
    ByteRange bytes;
    Stash stash;
    c10::VariableVersion version;  // of the tensor that it was copied for
    std::uint32_t version_number;
    CUstream producer;

    [[nodiscard]] bool is_of(const c10::VariableVersion& other) const;
  };

  /// take() where nothing is there yet.
  Result<Bytes> take_first(const ByteRange& wanted,
                           const c10::VariableVersion& version,
                           driver::Stream producer);

  void hold(const ByteRange& bytes,
            Stash taken,
            const c10::VariableVersion& version,
            driver::Stream producer);

  DeviceRuntime& device_;
  const driver::DevicePtr storage_;
  const Bytes size_;
  c10::SmallVector<Piece, 1> pieces_;  // disjoint, in order; most often all of the storage
  driver::Fence last_written_;
};

}  // namespace spillway
