// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace spillway {

/// The start time of a process on this machine, in clock ticks since boot. A process ID and this
/// time identify one process: a later process with the same ID has another time. Empty if the
/// process has ended (zombies included), and if /proc/PID/stat cannot be read, as with no file
/// descriptor left. Use has_ended() to distinguish the two.
std::optional<std::uint64_t> start_of(std::int32_t process);

/// Whether the process with this ID and start time has ended. True only with proof: false if its
/// state cannot be read. `started` 0 means an unknown start time; any running process with this ID
/// counts then.
bool has_ended(std::int32_t process, std::uint64_t started);

/// "; RLIMIT_AS (ulimit -v) limits this process to 4.00 GiB of addresses: …" for the text of an
/// error about refused memory or addresses. Empty without such a limit.
std::string address_space_limit();

}  // namespace spillway
