// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "allocator/base/file.h"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <type_traits>

namespace spillway::emulator {

class MemoryFile;

/// What a handle for other processes says: 64 bytes that travel however the program likes. It names
/// memory in a file of the process that made it. It opens nothing by itself: the other process must
/// belong to the same user, and the tag shows that its maker had that file.
struct Ticket {
  enum class Kind : std::uint32_t { kMemory = 1, kEvent, kMapped };

  std::uint64_t magic;
  std::int32_t process;
  std::int32_t file;      // its number there
  std::uint64_t started;  // tells the process from a later one of the same number
  std::uint32_t device;   // its number in the machine
  Kind kind;
  std::uint64_t offset;
  std::uint64_t bytes;
  std::uint64_t tag;
};

static_assert(sizeof(Ticket) <= 64 && std::is_trivial_v<Ticket>);

/// A ticket of this process for memory of the file's device. Nothing where the machine refuses it.
std::optional<Ticket> issue(MemoryFile& file,
                            Ticket::Kind kind,
                            std::uint64_t offset,
                            std::uint64_t bytes);

/// What this process calls the ticket's device, -1 where it does not see it.
int device_of(const Ticket& ticket);

/// Whether this process made it.
bool is_own(const Ticket& ticket);

/// The file that a ticket of `kind` names, opened. Nothing where it was not made by a living
/// process of this user, or was changed since.
std::optional<File> open_file_of(const Ticket& ticket, Ticket::Kind kind);

/// The same for an open file of device memory that came from another process, with the ticket that
/// lies in it for the file's position (put there by leave_in_file).
std::optional<Ticket> ticket_in(int file);
/// Leaves the ticket in its own file, and gives an open file whose position is the memory's.
std::optional<File> leave_in_file(MemoryFile& file, const Ticket& ticket);

}  // namespace spillway::emulator
