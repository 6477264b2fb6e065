// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "allocator/base/bytes.h"
#include "allocator/base/mutex.h"
#include "allocator/base/result.h"
#include "allocator/driver/handles.h"
#include "allocator/transfer/host_pages.h"
#include "allocator/transfer/host_room.h"
#include "allocator/transfer/node_ledger.h"

#include <array>
#include <condition_variable>
#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <thread>

namespace spillway {

/// A background thread that creates one pinned piece at a time, ahead of need. It starts with the
/// first piece and blocks all signals. Only the destructor ends it (tests only); it is not joined
/// at process exit.
///
/// Threads: the owner's lock serializes all calls.
class PinWorker {
 public:
  using Make = std::function<Result<HostPages>(Bytes)>;

  explicit PinWorker(Make make) : make_(std::move(make)) {}

  /// Requires: no piece is in progress.
  ~PinWorker();
  PinWorker(const PinWorker&) = delete;
  PinWorker& operator=(const PinWorker&) = delete;

  /// Begins a piece. False if the machine has no thread left. Requires: no piece is in progress.
  bool begin(Bytes size);

  /// The size of the piece in progress, from begin() to finish(); zero if there is none.
  [[nodiscard]] Bytes under_way() const { return under_way_; }

  /// Waits for the piece. Requires: a piece is in progress. Errors: those of make.
  Result<HostPages> finish();

 private:
  void work();

  const Make make_;
  Bytes under_way_;
  std::thread thread_;

  Mutex mutex_;
  std::condition_variable_any changed_;
  Bytes wanted_ SPILLWAY_GUARDED_BY(mutex_);  // read by the thread; zero for none
  std::optional<Result<HostPages>> made_ SPILLWAY_GUARDED_BY(mutex_);
  bool end_ SPILLWAY_GUARDED_BY(mutex_) = false;
};

/// Why memory was not pinned.
enum class PinRefusal {
  kLimit,    // PinnedOptions::limit
  kNode,     // PinnedOptions::node_limit
  kMachine,  // the machine, or a control group of the process, has too little memory left
  kDriver,   // the driver refused to register it
  kCount,
};
std::string_view pin_refusal_name(PinRefusal refusal);

struct PinnedOptions {
  Bytes limit;  // maximum for this device, zero for none. SPILLWAY_PINNED_LIMIT
  // Maximum for all processes of one user on a machine that set SPILLWAY_NODE_PINNED_LIMIT,
  // together; zero for none.
  Bytes node_limit;
  bool ahead = false;               // creates pieces in the background ahead of need
  std::string root;                 // root of /proc and /sys; tests use their own
  std::string ledger = "/dev/shm";  // directory of the node's ledger
};

/// Page-locked host memory in pieces, with its budgets. Independent of the contents of the pieces.
///
/// Threads: confined; the arena holds its lock.
/// Ownership: owns the pieces; the destructor frees them.
class PinnedPieces {
 public:
  PinnedPieces(const driver::Device& device, PinnedOptions options);
  ~PinnedPieces();
  PinnedPieces(const PinnedPieces&) = delete;
  PinnedPieces& operator=(const PinnedPieces&) = delete;

  /// Maps and registers a piece of `size`, rounded up to a page.
  /// Errors: kOutOfHostMemory past a limit, or if the machine or the driver refuses. Nothing is
  /// leaked then, and the reason is counted.
  Result<std::byte*> add(Bytes size);

  /// Begins a piece in the background; it counts as pinned from now on. Does nothing if that is
  /// impossible.
  /// Requires: no piece is in progress.
  void begin(Bytes size);

  /// The size of the piece in progress; zero for none.
  [[nodiscard]] Bytes begun() const { return worker_.under_way(); }

  /// Returns the piece in progress; waits until it is ready.
  /// Requires: a piece is in progress.
  /// Errors: kOutOfHostMemory.
  Result<std::byte*> finish();

  /// Unregisters and unmaps a piece. Requires: no copy uses it.
  void remove(std::byte* piece);

  /// The pieces by their beginning, in address order.
  [[nodiscard]] const std::map<std::byte*, HostPages>& all() const { return pieces_; }

  /// The NUMA node that pieces are requested on; kNoNode if it is unknown.
  [[nodiscard]] int node() const { return node_; }

  [[nodiscard]] const PinnedOptions& options() const { return options_; }

  [[nodiscard]] Bytes registered() const { return registered_; }

  [[nodiscard]] Bytes registered_peak() const { return registered_peak_; }

  [[nodiscard]] std::uint64_t registrations() const { return registrations_; }

  using Refusals = std::array<std::uint64_t, static_cast<std::size_t>(PinRefusal::kCount)>;

  /// Number of refusals by reason.
  [[nodiscard]] const Refusals& refusals() const { return refusals_; }

  /// The bytes that a piece of `size` occupies: whole pages, or whole huge pages if it is large.
  /// Sizes beyond any machine are returned unchanged.
  static Bytes whole_pages(Bytes size);

  /// The largest piece within `limit`.
  static Bytes whole_pages_in(Bytes limit);

 private:
  Status refuse(PinRefusal why, Bytes size, const std::string& text);
  /// Charges `size` to all budgets, or to none. Errors: kOutOfHostMemory.
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
