// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "allocator/base/bytes.h"

#include <string>

namespace spillway {

/// More than any machine has. Sums of smaller sizes cannot overflow.
constexpr Bytes kNoMachineHasThis{1ULL << 50U};

/// The memory of a machine that a process may use.
struct HostRoom {
  Bytes machine;  // total memory of the machine
  Bytes most;     // the minimum of that and of the limits of the process's control groups
  /// Bytes that can be pinned now with a reserve of a sixteenth of each limit (at most 1 GiB).
  /// Pinned memory cannot be reclaimed when the machine or the group needs it. Caches that can be
  /// dropped count as free.
  Bytes left;
};

/// Reads /proc and /sys/fs/cgroup under `root`, version 1 and 2, for the process's groups and all
/// their ancestors. Unreadable values are no limits.
HostRoom host_room(const std::string& root = "");

}  // namespace spillway
