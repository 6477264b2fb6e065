// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "allocator/device/device_runtime.h"
#include "torch_glue/saved_storage/byte_ranges.h"

#include <c10/core/TensorImpl.h>
#include <c10/util/SmallVector.h>

namespace spillway {

/// The bytes of one storage on the host: those that saved tensors cover, each once.
///
/// Threads: confined; the storage's lock is held.
/// Ownership: owns the host memory; borrows the device.
class HostCopy {
 public:
  HostCopy(DeviceRuntime& device, driver::DevicePtr storage, Bytes size)
      : device_(device), storage_(storage), size_(size) {}

  /// Begins copying the bytes of `wanted`, covered by a tensor at `version`, that are not on the
  /// host yet. Returns the number of bytes copied.
  ///
  /// Views may have version counters of their own (unsafe_chunk, .data). Bytes on the host are
  /// current only if the same counter has the same version; otherwise they are copied again. For
  /// tensors saved earlier, either their bytes are unchanged, or their own counter detects the
  /// change.
  ///
  /// Stream: after the work submitted to `producer`; no wait.
  /// Errors: kOutOfHostMemory, kDriver; nothing has changed then.
  Result<Bytes> take(const ByteRange& wanted,
                     const c10::VariableVersion& version,
                     driver::Stream producer);

  [[nodiscard]] bool empty() const { return pieces_.empty(); }

  /// Bytes on the host.
  [[nodiscard]] Bytes size() const;
  /// From its first byte to its last. Requires: not empty().
  [[nodiscard]] ByteRange extent() const;

  /// Whether the storage's block in our heap has fences of the copies. Requires: not empty().
  [[nodiscard]] bool heap_knows() const { return pieces_.back().stash.in_heap(); }

  /// The last copy out; all earlier ones have passed when it has. Requires: not empty().
  [[nodiscard]] driver::Fence last_written() const { return last_written_; }

  /// Begins copying everything to a block that contains the storage's bytes from `begin` on; as
  /// Residency::fetch.
  Result<driver::Fence> fetch(driver::DevicePtr destination,
                              Bytes begin,
                              driver::Stream consumer,
                              CopyPriority priority);

  /// Marks the fetched bytes as offloaded again, or as resident; changes only the accounting.
  void set_offloaded(bool offloaded);

  /// Makes the streams that filled the storage wait for the copies that read it.
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

  /// take() for an empty copy.
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
  c10::SmallVector<Piece, 1> pieces_;  // disjoint, in order; usually the whole storage
  driver::Fence last_written_;
};

}  // namespace spillway
