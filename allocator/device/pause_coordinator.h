// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "allocator/base/bytes.h"
#include "allocator/base/result.h"
#include "allocator/device/device_registry.h"
#include "allocator/residency/pause.h"

#include <cstdint>
#include <string>
#include <vector>

namespace spillway {

/// Tags to pause, and whether their contents are kept.
struct PauseRequest {
  std::string pattern;  // as in tag_matches
  Contents contents = Contents::kKept;
};

/// Result of a pause or a resume, over all devices.
struct PauseResult {
  std::uint64_t blocks = 0;
  Bytes bytes;     // as requested by their owners
  Bytes copied;    // to or from the host
  Bytes released;  // released to the driver by a pause
};

/// Pauses and resumes memory by tag, over all devices of a process. One operation at a time.
/// Threads: safe. Ownership: borrows the registry.
class PauseCoordinator {
 public:
  explicit PauseCoordinator(DeviceRegistry& devices) : devices_(devices) {}

  /// Releases the memory of all allocated blocks whose tag matches a pattern, on all devices; the
  /// addresses stay. Blocks allocated later under such a tag are not paused.
  /// Requires: no work uses the blocks before the resume; an access faults. Streams that use a
  /// block besides its own are recorded, or its stream waits for them, as for a free.
  /// Stream: the host waits for submitted work of the blocks' streams, and for the copies.
  /// Errors: kInvalidArgument for the empty pattern, and if no memory matches; kNotReady if all of
  /// it is paused; kOutOfHostMemory; kDriver. All or nothing: nothing is paused then.
  Result<PauseResult> pause(const std::vector<PauseRequest>& requests);

  /// Restores paused memory at its addresses; any stream may use it afterwards.
  /// Stream: the host waits for the copies.
  /// Errors: kInvalidArgument and kNotReady as pause(). kOutOfDeviceMemory after all evictable()
  /// tags were paused, with the error text of a failed allocation. kDriver. All or nothing:
  /// everything is paused as before then.
  Result<PauseResult> resume(const std::vector<std::string>& patterns);

  /// Keeps memory under `pattern` resident until the matching leave_resident(), even if memory runs
  /// out. Resumes paused memory now.
  /// Errors: as resume(); nothing has changed then.
  Result<PauseResult> enter_resident(const std::string& pattern);

  void leave_resident(const std::string& pattern) { evictable().unpin(pattern); }

  /// Tags that the out-of-memory handling may pause. resume() or enter_resident() resumes them.
  Evictable& evictable() { return devices_.evictable(); }

 private:
  [[nodiscard]] Status usable() const;
  [[nodiscard]] Status nothing_under(const std::vector<std::string>& patterns,
                                     const char* otherwise) const;
  /// Requires: Evictable::operation_mutex is held.
  Result<PauseResult> resume_locked(const std::vector<std::string>& patterns);

  DeviceRegistry& devices_;
};

}  // namespace spillway
