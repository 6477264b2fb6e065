// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "allocator/base/bytes.h"
#include "allocator/base/result.h"
#include "allocator/driver/handles.h"
#include "allocator/heap/accounting.h"
#include "allocator/heap/heap.h"
#include "allocator/heap/range.h"

#include <cstdint>
#include <map>
#include <vector>

namespace spillway {

/// Physical device memory: mapped at one place for its whole life, and unmapped only whole.
struct Chunk {
  Bytes size;
  CUmemGenericAllocationHandle handle;
};

/// Who may touch a heap's memory: its own device first.
using Access = std::vector<CUmemAccessDesc>;

/// The memory behind a range of addresses: chunks.
///
/// Threads: confined; the region's lock is held, and the heap's for what maps.
/// Ownership: owns the chunks; borrows `access` and `accounting`, which it reports them. The
/// device must be done with them when it is destroyed.
class Backing {
 public:
  /// Requires: the range begins and ends at multiples of `granularity`, and `most` is one; chunks
  /// of `memory` come in them.
  Backing(const driver::Device& device,
          const CUmemAllocationProp& memory,
          Bytes granularity,
          Bytes most,
          const Access& access,
          Accounting& accounting)
      : device_(device),
        memory_(memory),
        granularity_(granularity),
        most_(most),
        access_(access),
        accounting_(accounting) {}

  ~Backing();
  Backing(const Backing&) = delete;
  Backing& operator=(const Backing&) = delete;

  [[nodiscard]] Bytes granularity() const { return granularity_; }

  [[nodiscard]] const std::map<driver::DevicePtr, Chunk>& chunks() const { return chunks_; }

  /// Mapped, but neither accessible nor released, because the driver refused to undo a mapping
  /// that had failed half way.
  [[nodiscard]] const std::vector<Range>& stuck() const { return stuck_; }

  /// No longer mapped, but the driver refused to take it back: held indefinitely.
  [[nodiscard]] Bytes lost() const { return lost_; }

  /// The chunk that `at` lies in; the end where there is none.
  [[nodiscard]] std::map<driver::DevicePtr, Chunk>::const_iterator around(
      driver::DevicePtr at) const;

  /// The end of the addresses from `at` on, at most `most`, that are as `at` is: in one chunk, in
  /// one stuck range, or in neither.
  [[nodiscard]] driver::DevicePtr border(driver::DevicePtr at, driver::DevicePtr most) const;
  [[nodiscard]] bool is_stuck(driver::DevicePtr at) const;

  /// Creates chunks of at most `most` bytes (zero: what is best) and maps them side by side.
  /// Requires: nothing in `where` is mapped, and it is made of whole granules. Errors:
  /// kOutOfDeviceMemory where the driver or the limit has no room, kDriver; then nothing is mapped
  /// but what is stuck.
  Status map(Range where, Bytes most = {});

  /// Lets `chunks`, by their addresses, be seen a second time, side by side from `at` on. CUDA
  /// calls this virtual aliasing: what is written through one address is seen through the other by
  /// what comes after in stream order. Requires: nothing is mapped there. Errors: kDriver; nothing
  /// is mapped there then but what is stuck.
  Status view(driver::DevicePtr at, const std::vector<driver::DevicePtr>& chunks);

  /// Ends that. False where the driver refuses; the view is then as it was. Requires: the device is
  /// done with it.
  bool end_view(driver::DevicePtr at);

  [[nodiscard]] bool is_view(driver::DevicePtr at) const { return views_.contains(at); }

  /// Unmaps the chunk at `at` and gives it back. False where the driver refuses; the chunk is then
  /// as it was. Requires: the device is done with it.
  bool unmap(driver::DevicePtr at);

  /// The chunks that `where` lies in, as files for other processes. Requires: all of it is mapped.
  /// Errors: kInvalidArgument where this device's memory cannot be given to them; kDriver.
  [[nodiscard]] Result<SharedMemory> share(Range where) const;

  /// Lets the devices in `access` touch what is mapped. Errors: kDriver.
  Status allow(const Access& access) const;

 private:
  using Chunks = std::map<driver::DevicePtr, Chunk>;

  [[nodiscard]] Bytes most_of_a_chunk() const;
  Status make_chunks(Range where, Bytes most, Chunks& made);
  bool release(const Chunk& chunk);

  const driver::Device device_;
  const CUmemAllocationProp memory_;
  const Bytes granularity_;
  const Bytes most_;
  const Access& access_;
  Accounting& accounting_;
  Chunks chunks_;
  std::map<driver::DevicePtr, Bytes> views_;
  std::vector<Range> stuck_;
  Bytes lost_;
};

}  // namespace spillway
