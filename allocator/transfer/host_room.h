// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "allocator/base/bytes.h"

#include <string>

namespace spillway {

/// More than any machine holds. Sums of sizes below it cannot overflow.
constexpr Bytes kNoMachineHasThis{1ULL << 50U};

/// What a process may have of a machine's memory.
struct HostRoom {
  Bytes machine;  // all of its memory
  Bytes most;     // the least of that and of the limits of the process's control groups
  /// What can be taken now without coming near any of them: memory that is pinned cannot be
  /// released
  ///  when the machine or the group needs it, so a sixteenth of each limit stays (at most 1
  /// GiB). Caches that can be dropped count as free.
  Bytes left;
};

/// Reads /proc and /sys/fs/cgroup under `root`, version 1 and 2, the process's groups and all those
/// around them. What cannot be read limits nothing.
HostRoom host_room(const std::string& root = "");

}  // namespace spillway
