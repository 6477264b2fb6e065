// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "allocator/base/bytes.h"
#include "allocator/base/result.h"
#include "allocator/driver/api.h"
#include "allocator/driver/handles.h"
#include "allocator/driver/timeline.h"
#include "allocator/transfer/host_arena.h"

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

namespace spillway {

/// Urgency of a copy. Each direction has one stream per priority. A demand copy can thus overtake
/// a prefetch copy between two of its parts.
enum class CopyPriority {
  kPrefetch,  // nothing waits for it yet: an offload or a prefetch
  kDemand,    // a stream or the host waits for it: a fetch on demand
};

/// A copy to the host. `fences`: those that must pass before the destination is overwritten. The
/// set is used during the call only, which replaces it by the fence of the copy.
struct CopyOut {
  CopyOut(driver::DevicePtr from, HostBytes to, driver::FenceSet& before)
      : source(from), destination(to), fences(&before) {}

  CopyOut(driver::DevicePtr from, HostSlot& to) : CopyOut(from, to.bytes(), to.fences) {}

  driver::DevicePtr source;
  HostBytes destination;
  driver::FenceSet* fences;
};

/// A copy to the device. `written`: the fence of the copy that filled the source.
struct CopyIn {
  HostBytes source;
  driver::Fence written;
  driver::DevicePtr destination;
};

/// The copy streams of one device, two per direction. Copies above kCopyPart are
/// split into parts. Smaller ones are batched into driver calls of up to that size, if the driver
/// supports batches. The copies of one call have no order among themselves. The engine's
/// stream waits once for each call, and the call returns one fence for all its copies. No function
/// but drain_sync() blocks the host, except after a driver error.
///
/// The caller keeps source and destination valid until the fence has passed, and the source
/// unmodified. Heap::add_fence() does this for a block that is freed earlier, HostSlot::fences for
/// a slot.
///
/// Threads: safe. Ownership: owns the streams; borrows arguments for the call only.
class CopyEngine {
 public:
  static Result<std::unique_ptr<CopyEngine>> create(const driver::Device& device);
  ~CopyEngine();
  CopyEngine(const CopyEngine&) = delete;
  CopyEngine& operator=(const CopyEngine&) = delete;

  /// Fills each destination from the device.
  /// Requires: at least one copy.
  /// Stream: after everything submitted to `producer` so far (invariant 1 in docs/invariants.md)
  /// and after CopyOut::fences (invariant 4).
  /// Errors: kDriver. No copy has been started then, or the host has waited for those that were.
  /// The sets of fences are unchanged.
  Result<driver::Fence> to_host(std::span<const CopyOut> copies,
                                driver::Stream producer,
                                CopyPriority priority = CopyPriority::kPrefetch);

  /// Copies each source to the device.
  /// Requires: at least one copy; the destinations were allocated on `consumer` (invariant 3).
  /// Stream: after each `written` and after everything submitted to `consumer` so far. The caller
  /// makes `consumer` wait for the returned fence before it uses the data (Timeline::wait).
  /// Errors: kDriver. No copy has been started then, or the host has waited for those that were.
  Result<driver::Fence> to_device(std::span<const CopyIn> copies,
                                  driver::Stream consumer,
                                  CopyPriority priority = CopyPriority::kPrefetch);

  /// As above, for one copy.
  Result<driver::Fence> to_host(const CopyOut& copy,
                                driver::Stream producer,
                                CopyPriority priority = CopyPriority::kPrefetch);
  Result<driver::Fence> to_device(const CopyIn& copy,
                                  driver::Stream consumer,
                                  CopyPriority priority = CopyPriority::kPrefetch);

  /// Bytes that to_device() was called with so far.
  [[nodiscard]] Bytes queued_in() const;

  /// Blocks the host until no copy runs. A driver error on one stream does not end the wait for the
  /// others. For callers that cannot wait for a fence (counted in driver::Counters::host_syncs).
  void drain_sync();

  [[nodiscard]] driver::Stream out_stream(CopyPriority priority = CopyPriority::kPrefetch) const;
  [[nodiscard]] driver::Stream in_stream(CopyPriority priority = CopyPriority::kPrefetch) const;

 private:
  struct State;
  explicit CopyEngine(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

/// Maximum bytes per driver call. At 50 GB/s a part delays an urgent copy by 0.7 ms, and the calls
/// cost less than a hundredth of the copy.
inline constexpr Bytes kCopyPart{32ULL << 20U};

enum class CopyDirection { kOut, kIn };

/// One copy for a single call.
struct OneCopy {
  driver::DevicePtr device;
  std::byte* host;
  Bytes size;
};

/// Queues it. Errors: kDriver; then nothing is queued.
Status copy_at_once(const driver::Api& api,
                    CopyDirection direction,
                    const OneCopy& copy,
                    driver::Stream stream);

/// Copies of one direction, split into parts and batched into calls of at most kCopyPart each. A
/// large copy becomes several calls. Many small copies become one call if the driver supports
/// batches.
class CopyParts {
 public:
  explicit CopyParts(CopyDirection direction) : direction_(direction) {}

  void add(driver::DevicePtr device, std::byte* host, Bytes size);

  /// Queues them. `queued`: whether any call succeeded, even if a later one failed.
  /// Errors: kDriver.
  Status submit(const driver::Api& api, driver::Stream stream, bool& queued);

 private:
  Status submit(const driver::Api& api, driver::Stream stream, std::size_t from, std::size_t to);

  // In the form that the driver's batch function takes.
  const CopyDirection direction_;
  std::vector<CUdeviceptr> device_;
  std::vector<CUdeviceptr> host_;
  std::vector<std::size_t> sizes_;
};

}  // namespace spillway
