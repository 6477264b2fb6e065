// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "allocator/base/bytes.h"
#include "allocator/base/result.h"
#include "allocator/driver/handles.h"
#include "allocator/transfer/host_pages.h"
#include "allocator/transfer/host_room.h"
#include "allocator/transfer/node_ledger.h"
#include "allocator/transfer/pin_worker.h"

#include <array>
#include <cstddef>
#include <map>
#include <memory>
#include <string>
#include <string_view>

namespace spillway {

/// Why memory was not pinned.
enum class PinRefusal {
  kLimit,    // PinnedOptions::limit
  kNode,     // PinnedOptions::node_limit, all processes of the machine together
  kMachine,  // the machine, or a control group of the process, has too little left
  kDriver,   // the driver did not register it
  kCount,
};
std::string_view pin_refusal_name(PinRefusal refusal);

struct PinnedOptions {
  Bytes limit;         // most bytes of this device, zero for none. SPILLWAY_PINNED_LIMIT
  Bytes node_limit;    // of all processes of the machine, zero for none. SPILLWAY_NODE_PINNED_LIMIT
  bool ahead = false;  // pieces are made in the background before they are needed
  std::string root;    // where /proc and /sys are found; tests have their own
  std::string ledger = "/dev/shm";  // the folder of the node's ledger
};

/// Page-locked host memory from the system, in pieces, and its budgets. Knows nothing of what is in
/// the pieces.
///
/// Threads: confined; the arena holds its lock. Ownership: owns the pieces; the destructor frees
/// them.
class PinnedPieces {
 public:
  PinnedPieces(const driver::Device& device, PinnedOptions options);
  ~PinnedPieces();
  PinnedPieces(const PinnedPieces&) = delete;
  PinnedPieces& operator=(const PinnedPieces&) = delete;

  /// Maps and registers a piece of `size`, rounded up to a page. Errors: kOutOfHostMemory past a
  /// limit, or where the machine or the driver refuses; nothing is leaked then, and the reason is
  /// counted.
  Result<std::byte*> add(Bytes size);

  /// Begins a piece in the background; it counts as pinned from now on. Where that cannot be,
  /// nothing happens. Requires: none is under way.
  void begin(Bytes size);

  /// The size of the piece that was begun, zero for none.
  [[nodiscard]] Bytes begun() const { return worker_.under_way(); }

  /// The piece that was begun; waits where it is not ready. Requires: one was. Errors:
  /// kOutOfHostMemory.
  Result<std::byte*> finish();

  /// Unregisters and unmaps. Requires: no copy is under way in it.
  void remove(std::byte* piece);

  /// By their beginning, in address order.
  [[nodiscard]] const std::map<std::byte*, HostPages>& all() const { return pieces_; }

  /// The NUMA node that pieces are asked for on, kNoNode where none is known.
  [[nodiscard]] int node() const { return node_; }

  [[nodiscard]] const PinnedOptions& options() const { return options_; }

  [[nodiscard]] Bytes registered() const { return registered_; }

  [[nodiscard]] Bytes registered_peak() const { return registered_peak_; }

  [[nodiscard]] std::uint64_t registrations() const { return registrations_; }

  using Refusals = std::array<std::uint64_t, static_cast<std::size_t>(PinRefusal::kCount)>;

  /// How often each reason was met.
  [[nodiscard]] const Refusals& refusals() const { return refusals_; }

  /// The bytes that a piece of `size` takes: whole pages, and of large ones whole huge pages. Sizes
  /// that no machine has stay as they are.
  static Bytes whole_pages(Bytes size);

  /// The largest piece within `limit`.
  static Bytes whole_pages_in(Bytes limit);

 private:
  Status refuse(PinRefusal why, Bytes size, const std::string& text);
  /// Takes `size` out of every budget, or out of none. Errors: kOutOfHostMemory.
  Status charge(Bytes size);
  void release(Bytes size);
  Result<std::byte*> keep(Bytes size, const Result<HostPages>& made);

  const driver::Device device_;
  const PinnedOptions options_;
  const int node_;
  NodeLedger ledger_;
  PinWorker worker_;
  std::map<std::byte*, HostPages> pieces_;
  Bytes registered_;
  Bytes registered_peak_;
  std::uint64_t registrations_ = 0;
  Refusals refusals_{};
};

}  // namespace spillway
