// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "allocator/base/bytes.h"
#include "allocator/base/result.h"
#include "allocator/driver/handles.h"
#include "allocator/transfer/host_pages.h"

#include <cstddef>
#include <map>

namespace spillway {

/// Page-locked host memory from the system, in pieces. Knows nothing of what is in them.
///
/// Threads: confined; the arena holds its lock. Ownership: owns the pieces; the destructor frees
/// them.
class PinnedPieces {
 public:
  /// `limit`: most bytes, zero for none.
  PinnedPieces(const driver::Device& device, Bytes limit)
      : device_(device), limit_(limit), node_(host_node_of(device)) {}

  ~PinnedPieces();
  PinnedPieces(const PinnedPieces&) = delete;
  PinnedPieces& operator=(const PinnedPieces&) = delete;

  /// Maps and registers a piece of `size`, rounded up to a page. Errors: kOutOfHostMemory past the
  /// limit, or where the machine or the driver refuses; nothing is leaked then.
  Result<std::byte*> add(Bytes size);

  /// Unregisters and unmaps. Requires: no copy is under way in it.
  void remove(std::byte* piece);

  /// By their beginning, in address order.
  [[nodiscard]] const std::map<std::byte*, HostPages>& all() const { return pieces_; }

  /// The NUMA node that pieces are asked for on, kNoNode where none is known.
  [[nodiscard]] int node() const { return node_; }

  [[nodiscard]] Bytes registered() const { return registered_; }

  [[nodiscard]] Bytes registered_peak() const { return registered_peak_; }

  [[nodiscard]] std::uint64_t registrations() const { return registrations_; }

  /// The bytes that a piece of `size` takes: whole pages, and of large ones whole huge pages. Sizes
  /// that no machine has stay as they are.
  static Bytes whole_pages(Bytes size);

 private:
  const driver::Device device_;
  const Bytes limit_;
  const int node_;
  std::map<std::byte*, HostPages> pieces_;
  Bytes registered_;
  Bytes registered_peak_;
  std::uint64_t registrations_ = 0;
};

/// More than any machine holds. Sums of sizes below it cannot overflow.
constexpr Bytes kNoMachineHasThis{1ULL << 50U};

}  // namespace spillway
