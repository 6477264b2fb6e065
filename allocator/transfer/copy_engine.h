// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "allocator/base/result.h"
#include "allocator/driver/timeline.h"
#include "allocator/transfer/host_arena.h"

#include <memory>
#include <span>

namespace spillway {

/// Who waits for a copy. Each direction has a queue for both: a copy that is waited for passes
/// those made ahead, between two of their parts.
enum class CopyPriority {
  kPrefetch,  // nobody waits yet: a stash, a prefetch
  kDemand,    // somebody does: a fetch on demand
};

/// One of several copies out. Borrows the slot for the call.
struct CopyOut {
  driver::DevicePtr source;
  HostSlot* slot;
};

/// One of several copies in. `written` is the fence of the copy that filled the slot.
struct CopyIn {
  const HostSlot* slot;
  driver::Fence written;
  driver::DevicePtr destination;
};

/// The copy streams of one device, two for each direction. Large copies go in parts, small ones
/// together: one call, one marker and one wait for all of a call's copies. Copies of one call have
/// no order among themselves. A copy returns its fence; nothing here blocks the host.
///
/// Threads: safe. Ownership: owns the streams; borrows nothing beyond a call.
class CopyEngine {
 public:
  static Result<std::unique_ptr<CopyEngine>> create(const driver::Device& device);
  ~CopyEngine();
  CopyEngine(const CopyEngine&) = delete;
  CopyEngine& operator=(const CopyEngine&) = delete;

  /// Copies slot->size bytes from the device into each slot.
  /// Stream: after everything submitted to `producer` so far (invariant 1 in docs/invariants.md)
  /// and after the slots' fences, which are cleared (invariant 4). Errors: kDriver; then no copy is
  /// under way, and the slots' fences are as they were. Requires: at least one copy.
  Result<driver::Fence> to_host(std::span<const CopyOut> copies,
                                driver::Stream producer,
                                CopyPriority haste = CopyPriority::kPrefetch);

  /// Copies slot->size bytes from each slot to the device.
  /// Stream: after each `written` and after everything submitted so far to `consumer`, the stream
  /// that the destinations were allocated on (invariant 3). The consumer must still wait for the
  /// fence. Errors: kDriver; then no copy is under way. Requires: at least one copy.
  Result<driver::Fence> to_device(std::span<const CopyIn> copies,
                                  driver::Stream consumer,
                                  CopyPriority haste = CopyPriority::kPrefetch);

  /// As above, one copy.
  Result<driver::Fence> to_host(driver::DevicePtr source,
                                HostSlot& slot,
                                driver::Stream producer,
                                CopyPriority haste = CopyPriority::kPrefetch);
  Result<driver::Fence> to_device(const HostSlot& slot,
                                  driver::Fence written,
                                  driver::DevicePtr destination,
                                  driver::Stream consumer,
                                  CopyPriority haste = CopyPriority::kPrefetch);

  /// Blocks the host until no copy runs any more, whatever the driver says. For whoever cannot wait
  /// for a fence (counted in driver::Counters::host_syncs).
  void drain_sync();

  [[nodiscard]] driver::Stream out_stream(CopyPriority haste = CopyPriority::kPrefetch) const;
  [[nodiscard]] driver::Stream in_stream(CopyPriority haste = CopyPriority::kPrefetch) const;

 private:
  struct State;
  explicit CopyEngine(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace spillway
