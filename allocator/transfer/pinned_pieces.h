// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "allocator/base/bytes.h"
#include "allocator/base/result.h"
#include "allocator/driver/handles.h"

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
  PinnedPieces(const driver::Device& device, Bytes limit) : device_(device), limit_(limit) {}

  ~PinnedPieces();
  PinnedPieces(const PinnedPieces&) = delete;
  PinnedPieces& operator=(const PinnedPieces&) = delete;

  /// Maps and registers a piece of `size`, rounded up to a page. Errors: kOutOfHostMemory past the
  /// limit, or where the machine or the driver refuses; nothing is leaked then.
  Result<std::byte*> add(Bytes size);

  /// Unregisters and unmaps. Requires: no copy is under way in it.
  void remove(std::byte* piece);

  /// From piece to size, in address order.
  [[nodiscard]] const std::map<std::byte*, Bytes>& all() const { return pieces_; }

  [[nodiscard]] Bytes registered() const { return registered_; }

  [[nodiscard]] Bytes registered_peak() const { return registered_peak_; }

  [[nodiscard]] std::uint64_t registrations() const { return registrations_; }

  /// The bytes that a piece of `size` takes; sizes that no machine has stay as they are.
  static Bytes whole_pages(Bytes size);

 private:
  const driver::Device device_;
  const Bytes limit_;
  std::map<std::byte*, Bytes> pieces_;
  Bytes registered_;
  Bytes registered_peak_;
  std::uint64_t registrations_ = 0;
};

/// More than any machine holds. Sums of sizes below it cannot overflow.
constexpr Bytes kNoMachineHasThis{1ULL << 50U};

}  // namespace spillway
