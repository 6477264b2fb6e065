// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "allocator/base/result.h"
#include "allocator/driver/timeline.h"
#include "allocator/transfer/host_arena.h"

#include <memory>

namespace spillway {

/// One copy stream per direction of one device. A copy returns its fence; nothing here blocks the
/// host.
///
/// Threads: safe. Ownership: owns both streams; borrows nothing beyond a call.
class CopyEngine {
 public:
  static Result<std::unique_ptr<CopyEngine>> create(const driver::Device& device);
  ~CopyEngine();
  CopyEngine(const CopyEngine&) = delete;
  CopyEngine& operator=(const CopyEngine&) = delete;

  /// Copies slot.size bytes from the device into `slot`.
  /// Stream: after everything submitted to `producer` so far (law 1) and after slot.fences, which
  /// are cleared (law 4). Errors: kDriver; then nothing was queued and the slot is as it was.
  Result<driver::Fence> to_host(driver::DevicePtr source, HostSlot& slot, driver::Stream producer);

  /// Copies slot.size bytes from `slot` to the device.
  /// Stream: after `written`, the fence of the copy that filled the slot, and after everything
  /// submitted so far to `consumer`, the stream that `destination` was allocated on (law 3). The
  /// consumer must still wait for the fence.
  Result<driver::Fence> to_device(const HostSlot& slot,
                                  driver::Fence written,
                                  driver::DevicePtr destination,
                                  driver::Stream consumer);

  [[nodiscard]] driver::Stream out_stream() const;
  [[nodiscard]] driver::Stream in_stream() const;

 private:
  struct State;
  explicit CopyEngine(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace spillway
