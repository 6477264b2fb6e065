// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "allocator/base/bytes.h"
#include "allocator/base/result.h"
#include "allocator/driver/handles.h"
#include "allocator/heap/accounting.h"
#include "allocator/heap/heap.h"
#include "allocator/heap/range.h"
#include "allocator/heap/spare_chunks.h"

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <vector>

namespace spillway {

/// The devices that can access a heap's memory; its own device is first.
using Access = std::vector<CUmemAccessDesc>;

/// The memory behind a range of addresses: chunks.
///
/// Threads: confined; callers hold the heap region's lock, and for mapping the heap's lock too.
/// Ownership: owns the chunks; borrows `access`, `spares`, and `accounting`, in which it counts the
/// chunks. At destruction the device must have finished all work on them.
class Backing {
 public:
  /// Requires: both ends of the range and `most`, the default chunk size, are multiples of
  /// `granularity`. The chunks of `memory` are allocated in this granularity. `user`: the stream
  /// that uses them; none: any stream.
  Backing(const driver::Device& device,
          const CUmemAllocationProp& memory,
          Bytes granularity,
          Bytes most,
          const Access& access,
          Accounting& accounting,
          SpareChunks& spares,
          std::optional<driver::Stream> user)
      : device_(device),
        memory_(memory),
        granularity_(granularity),
        most_(most),
        access_(access),
        accounting_(accounting),
        spares_(spares),
        user_(user) {}

  ~Backing();
  Backing(const Backing&) = delete;
  Backing& operator=(const Backing&) = delete;

  [[nodiscard]] Bytes granularity() const { return granularity_; }

  [[nodiscard]] const std::map<driver::DevicePtr, Chunk>& chunks() const { return chunks_; }

  /// Ranges that are mapped but not accessible. The driver refused to undo a mapping that had
  /// failed half way.
  [[nodiscard]] const std::vector<Range>& stuck() const { return stuck_; }

  /// The chunk that contains `at`; the end iterator if there is none.
  [[nodiscard]] std::map<driver::DevicePtr, Chunk>::const_iterator around(
      driver::DevicePtr at) const;

  /// The end of the uniform addresses that start at `at`, at most `most`: one chunk, one stuck
  /// range, or neither.
  [[nodiscard]] driver::DevicePtr border(driver::DevicePtr at, driver::DevicePtr most) const;

  /// Whether mapping there waits on the host for the device.
  [[nodiscard]] bool must_wait(Range where) const { return spares_.formers().in_use(where); }

  /// Whether the chunk that begins there can become a spare one that map() would use.
  [[nodiscard]] bool keeps(driver::DevicePtr chunk) const {
    const Chunk& known = chunks_.at(chunk);
    return spares_.keeps(known) && known.size <= most_of_a_chunk();
  }

  /// What a range of this size that map() is going to fill should have beyond it. Under a target,
  /// chunks of one size are exchanged without a rest.
  [[nodiscard]] Bytes surplus(Bytes size) const;

  [[nodiscard]] bool is_stuck(driver::DevicePtr at) const;

  /// Maps chunks, spare or new ones, side by side. Former mappings there end. With `cuts`, in
  /// address order and whole granules apart, each chunk ends at the next cut at most. Without, each
  /// has at most the default size.
  /// Requires: nothing in `where` is mapped, and `where` consists of whole granules.
  /// `uses`: gets what the user has to wait for before it uses the memory. Without, it waits.
  /// Stream: chunks that moved here may still be used at their former addresses, as above. The host
  /// waits for former mappings in `where` (must_wait), and for what is released to make room.
  /// Errors: kOutOfDeviceMemory if the driver or the limit has no room; kDriver. After an error
  /// only stuck ranges remain mapped.
  Status map(Range where,
             const std::vector<driver::DevicePtr>* cuts = nullptr,
             driver::FenceSet* uses = nullptr);

  /// Maps the chunks of `parts` a second time, side by side from `at` on. CUDA calls this virtual
  /// aliasing. Later work in stream order reads through either address what was written through the
  /// other.
  /// Requires: nothing is mapped there; each part consists of whole chunks.
  /// Errors: kDriver. After an error only stuck ranges remain mapped there.
  Status view(driver::DevicePtr at, std::span<const Range> parts);

  /// Unmaps a view. Returns false if the driver refuses; the view is then unchanged.
  /// Requires: the device has finished all work on the view.
  bool end_view(driver::DevicePtr at);

  [[nodiscard]] bool is_view(driver::DevicePtr at) const { return views_.contains(at); }

  /// Orders the user's later work after `uses`: on the device if it can wait there, as it cannot in
  /// a capture, else on the host. Errors: kDriver.
  [[nodiscard]] Status use_after(const driver::FenceSet& uses) const;

  /// The largest size of a chunk that map() makes.
  [[nodiscard]] Bytes most_of_a_chunk() const;

  /// Unmaps the chunks of `where` and keeps them as spare ones, or releases their memory. Returns
  /// false if the driver refuses; the chunks are then unchanged.
  /// Requires: `where` consists of whole chunks, and the device has finished all work on them.
  bool unmap(Range where);

  /// The chunks of `where` become spare ones without being unmapped (FormerMappings). `uses`:
  /// the last ones of the memory at these addresses.
  /// Requires: `where` consists of whole chunks, which SpareChunks keeps.
  void leave(Range where, const driver::FenceSet& uses);

  /// The chunks that contain `where`, as files for other processes.
  /// Requires: all of it is mapped.
  /// Errors: kInvalidArgument if this device's memory cannot be exported; kDriver.
  [[nodiscard]] Result<SharedMemory> share(Range where);

  /// Grants the devices in `access` access to the mapped memory. Errors: kDriver.
  Status allow(const Access& access) const;

 private:
  using Chunks = std::map<driver::DevicePtr, Chunk>;

  /// The chunks of one call of map().
  struct Made {
    Chunks chunks;
    Bytes size;
    driver::FenceSet uses{};
  };

  Status make_chunks(Range where, const std::vector<driver::DevicePtr>* cuts, Made& made);
  Result<Chunk> map_chunk(driver::DevicePtr at, Bytes size, const Made& made);
  Status create(Chunk& chunk);
  void undo(const Chunks& made);

  const driver::Device device_;
  const CUmemAllocationProp memory_;
  const Bytes granularity_;
  const Bytes most_;
  const Access& access_;
  Accounting& accounting_;
  SpareChunks& spares_;
  const std::optional<driver::Stream> user_;
  Chunks chunks_;
  std::map<driver::DevicePtr, Bytes> views_;
  std::vector<Range> stuck_;
};

}  // namespace spillway
