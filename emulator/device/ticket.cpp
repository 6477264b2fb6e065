// SPDX-License-Identifier: Apache-2.0
#include "emulator/device/ticket.h"

#include "allocator/base/process.h"
#include "emulator/device/addresses.h"
#include "emulator/device/memory_file.h"
#include "emulator/device/settings.h"

#include <fcntl.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <cstring>
#include <string>
#include <string_view>

namespace spillway::emulator {
namespace {

constexpr std::uint64_t kMagic = 0x7961'776c'6c69'7073;
constexpr std::uint64_t kTicketRoom = 64;

/// The file offset of the ticket of memory at `offset`.
off_t file_offset_of(std::uint64_t offset) {
  return MemoryFile::kNotes + static_cast<off_t>((1 + offset / kGranularity) * kTicketRoom);
}

bool read_at(int file, off_t offset, void* to, std::size_t bytes) {
  return pread(file, to, bytes, offset) == static_cast<ssize_t>(bytes);
}

bool write_at(int file, off_t offset, const void* from, std::size_t bytes) {
  return pwrite(file, from, bytes, offset) == static_cast<ssize_t>(bytes);
}

/// A number that only processes with access to the file know, created at its first use.
std::optional<std::uint64_t> secret_of(int file, bool make) {
  std::uint64_t secret = 0;
  if (!read_at(file, MemoryFile::kNotes, &secret, sizeof secret)) return std::nullopt;
  if (secret != 0 || !make) return secret == 0 ? std::nullopt : std::optional(secret);
  if (getrandom(&secret, sizeof secret, 0) != sizeof secret) return std::nullopt;
  secret |= 1U;
  if (!write_at(file, MemoryFile::kNotes, &secret, sizeof secret)) return std::nullopt;
  return secret;
}

/// Not secure against an attacker: a process that can open the file can read the memory anyway.
std::uint64_t tag_of(Ticket ticket, std::uint64_t secret) {
  ticket.tag = secret;
  std::array<unsigned char, sizeof(Ticket)> bytes{};
  std::memcpy(bytes.data(), &ticket, sizeof ticket);
  std::uint64_t tag = 0xcbf2'9ce4'8422'2325;
  for (const unsigned char byte : bytes)
    tag = (tag ^ byte) * 0x100'0000'01b3;
  return tag;
}

/// Whether it is device memory of a process of this user.
bool is_device_memory(int file, std::uint32_t device) {
  struct stat status {};

  if (fstat(file, &status) != 0 || status.st_uid != geteuid() ||
      status.st_size != MemoryFile::kSize) {
    return false;
  }
  const std::string link = "/proc/self/fd/" + std::to_string(file);
  std::array<char, 128> name{};
  if (readlink(link.c_str(), name.data(), name.size() - 1) <= 0) return false;
  const std::string wanted = "/memfd:" + MemoryFile::name_of(static_cast<int>(device)) + " ";
  return std::string_view(name.data()).starts_with(wanted);
}

bool is_genuine(const Ticket& ticket, int file) {
  if (ticket.magic != kMagic || !is_device_memory(file, ticket.device)) return false;
  const auto secret = secret_of(file, false);
  if (!secret || tag_of(ticket, *secret) != ticket.tag) return false;
  return ticket.bytes <= std::uint64_t{MemoryFile::kNotes} &&
         ticket.offset <= std::uint64_t{MemoryFile::kNotes} - ticket.bytes;
}

int open_again(const std::string& process, int file) {
  const std::string path = "/proc/" + process + "/fd/" + std::to_string(file);
  return open(path.c_str(), O_RDWR | O_CLOEXEC);
}

}  // namespace

std::optional<Ticket> issue(MemoryFile& file,
                            Ticket::Kind kind,
                            std::uint64_t offset,
                            std::uint64_t bytes) {
  const int number = file.descriptor();
  const auto secret = number < 0 ? std::nullopt : secret_of(number, true);
  if (!secret) return std::nullopt;
  Ticket ticket{};
  ticket.magic = kMagic;
  ticket.process = getpid();
  ticket.file = number;
  ticket.started = start_of(ticket.process).value_or(0);
  ticket.device = static_cast<std::uint32_t>(file.device());
  ticket.kind = kind;
  ticket.offset = offset;
  ticket.bytes = bytes;
  ticket.tag = tag_of(ticket, *secret);
  return ticket;
}

int device_of(const Ticket& ticket) {
  return settings().value().ordinal_of(static_cast<int>(ticket.device));
}

bool is_own(const Ticket& ticket) {
  return ticket.magic == kMagic && ticket.process == getpid() &&
         ticket.started == start_of(ticket.process).value_or(0);
}

std::optional<File> open_file_of(const Ticket& ticket, Ticket::Kind kind) {
  if (ticket.magic != kMagic || ticket.kind != kind || ticket.process <= 0) return std::nullopt;
  if (ticket.started != start_of(ticket.process).value_or(0)) return std::nullopt;
  File file(open_again(std::to_string(ticket.process), ticket.file));
  if (file.number() < 0 || !is_genuine(ticket, file.number())) return std::nullopt;
  return file;
}

std::optional<Ticket> ticket_in(int file) {
  Ticket ticket{};
  const off_t offset = lseek(file, 0, SEEK_CUR);
  if (offset < 0 || offset >= MemoryFile::kNotes) return std::nullopt;
  const off_t at = file_offset_of(static_cast<std::uint64_t>(offset));
  if (!read_at(file, at, &ticket, sizeof ticket)) return std::nullopt;
  const bool good = ticket.kind == Ticket::Kind::kMapped &&
                    ticket.offset == static_cast<std::uint64_t>(offset) && is_genuine(ticket, file);
  return good ? std::optional(ticket) : std::nullopt;
}

std::optional<File> leave_in_file(MemoryFile& file, const Ticket& ticket) {
  if (!write_at(file.descriptor(), file_offset_of(ticket.offset), &ticket, sizeof ticket)) {
    return std::nullopt;
  }
  File opened(open_again("self", file.descriptor()));
  const auto offset = static_cast<off_t>(ticket.offset);
  if (opened.number() < 0 || lseek(opened.number(), offset, SEEK_SET) != offset)
    return std::nullopt;
  return opened;
}

}  // namespace spillway::emulator
