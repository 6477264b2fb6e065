// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "allocator/base/file.h"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <type_traits>

namespace spillway::emulator {

class MemoryFile;

/// The content of a handle for other processes: 64 bytes that the program transmits by any means.
/// It names memory in a file of its creator. It grants no access by itself. The other process must
/// belong to the same user, and the tag proves that the creator had that file.
struct Ticket {
  enum class Kind : std::uint32_t { kMemory = 1, kEvent, kMapped };

  std::uint64_t magic;
  std::int32_t process;
  std::int32_t file;      // its file descriptor there
  std::uint64_t started;  // distinguishes the process from a later one with the same ID
  std::uint32_t device;   // its number in the machine
  Kind kind;
  std::uint64_t offset;
  std::uint64_t bytes;
  std::uint64_t tag;
};

static_assert(sizeof(Ticket) <= 64 && std::is_trivial_v<Ticket>);

/// Creates a ticket of this process for memory of the file's device. None if the machine refuses.
std::optional<Ticket> issue(MemoryFile& file,
                            Ticket::Kind kind,
                            std::uint64_t offset,
                            std::uint64_t bytes);

/// This process's ordinal of the ticket's device; -1 if it is not visible.
int device_of(const Ticket& ticket);

/// Whether this process created it.
bool is_own(const Ticket& ticket);

/// Opens the file that a ticket of `kind` names. None if it was not created by a running process of
/// this user, or was changed since.
std::optional<File> open_file_of(const Ticket& ticket, Ticket::Kind kind);

/// Likewise for an open file of device memory from another process, with the ticket stored for the
/// file's position (by leave_in_file).
std::optional<Ticket> ticket_in(int file);
/// Stores the ticket in its own file, and returns an open file whose position is the memory's.
std::optional<File> leave_in_file(MemoryFile& file, const Ticket& ticket);

}  // namespace spillway::emulator
