// SPDX-License-Identifier: Apache-2.0
#include "allocator/sharing/memory_handle.h"

#include "allocator/base/process.h"

#include <sys/syscall.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <limits>
#include <string>
#include <system_error>

namespace spillway {
namespace {

// The first byte exceeds every version that PyTorch's own allocator writes there, so that PyTorch
// rejects the handle instead of opening it.
constexpr std::array<char, 8> kMagic = {'S', 'P', 'I', 'L', 'L', 'W', 'A', 'Y'};
constexpr std::uint32_t kVersion = 1;

// Sender and receiver are on one machine: numbers are in memory order.
struct Header {
  std::array<char, 8> magic;
  std::uint32_t version;
  std::uint32_t pieces;
  std::int32_t process;
  std::int32_t proof;
  std::uint64_t started;
  std::uint64_t serial;
};

struct WirePiece {
  std::uint64_t size;
  std::int32_t file;
  std::uint32_t zero;
};

static_assert(sizeof(Header) == 40 && sizeof(WirePiece) == 16);

template <typename T>
void append(std::string& to, const T& value) {
  to.append(reinterpret_cast<const char*>(&value), sizeof value);
}

template <typename T>
T take(std::string_view& from) {
  T value{};
  std::memcpy(&value, from.data(), sizeof value);
  from.remove_prefix(sizeof value);
  return value;
}

Status wrong(const char* what) {
  return SPILLWAY_ERROR(Code::kInvalidArgument,
                        std::string("not a handle of shared memory: ") + what);
}

}  // namespace

std::string MemoryHandle::bytes() const {
  SPILLWAY_CHECK(pieces.size() <= kMaxPieces);
  std::string bytes;
  append(bytes,
         Header{kMagic,
                kVersion,
                static_cast<std::uint32_t>(pieces.size()),
                process,
                proof,
                started,
                serial});
  for (const Piece& piece : pieces)
    append(bytes, WirePiece{piece.size.count(), piece.file, 0});
  return bytes;
}

Result<MemoryHandle> MemoryHandle::read(std::string_view bytes) {
  if (bytes.size() < kMagic.size() ||
      std::memcmp(bytes.data(), kMagic.data(), kMagic.size()) != 0) {
    return wrong(
        "it does not come from Spillway's allocator. Call spillway.use_allocator() in sender and "
        "receiver.");
  }
  if (bytes.size() < sizeof(Header)) return wrong("it is too short");
  const auto header = take<Header>(bytes);
  if (header.version != kVersion) {
    return wrong(
        "another version of Spillway made it. Use the same version in sender and receiver.");
  }
  if (header.pieces == 0 || header.pieces > kMaxPieces ||
      bytes.size() != header.pieces * sizeof(WirePiece)) {
    return wrong("its length does not match its pieces");
  }
  if (header.process <= 0 || header.proof < 0)
    return wrong("a process or file number in it is negative");
  MemoryHandle handle{header.process, header.proof, header.started, header.serial, {}};
  std::uint64_t room = std::numeric_limits<std::int64_t>::max();
  for (std::uint32_t i = 0; i < header.pieces; ++i) {
    const auto piece = take<WirePiece>(bytes);
    if (piece.file < 0 || piece.zero != 0) return wrong("a field of a piece is out of range");
    if (piece.size == 0 || piece.size > room) return wrong("a size in it is out of range");
    room -= piece.size;
    handle.pieces.push_back({piece.file, Bytes{piece.size}});
  }
  return handle;
}

Bytes MemoryHandle::size() const {
  Bytes size;
  for (const Piece& piece : pieces)
    size += piece.size;
  return size;
}

namespace {

// Missing in the headers of some C libraries that Spillway runs on; the numbers are the same
// everywhere.
constexpr long kPidfdOpen = 434;
constexpr long kPidfdGetfd = 438;

Status ended(std::int32_t process) {
  return SPILLWAY_ERROR(Code::kNotReady,
                        "process " + std::to_string(process) +
                            ", which shared the memory, has ended or is in another PID namespace. "
                            "Keep the sender running, and use one namespace.");
}

}  // namespace

Result<OtherProcess> OtherProcess::open(std::int32_t process, std::uint64_t started) {
  File file(static_cast<int>(syscall(kPidfdOpen, process, 0)));
  if (!file.open() && errno != ESRCH) {
    return SPILLWAY_ERROR(Code::kNotReady,
                          std::string("the memory of another process cannot be opened: "
                                      "pidfd_open failed (") +
                              std::generic_category().message(errno) +
                              "). Use Linux 5.6 or later.");
  }
  if (!file.open()) return ended(process);
  // If the process with this ID started when the sender did, it had the ID when it was opened.
  const auto now = start_of(process);
  if (!now && !has_ended(process, started)) {
    return SPILLWAY_ERROR(Code::kNotReady,
                          "the memory of process " + std::to_string(process) +
                              " cannot be opened: /proc/" + std::to_string(process) +
                              "/stat cannot be read. Raise `ulimit -n`, which bounds open files.");
  }
  if (now != started) return ended(process);
  return OtherProcess(process, std::move(file));
}

Result<File> OtherProcess::take(int number) const {
  File taken(static_cast<int>(syscall(kPidfdGetfd, file_.number(), number, 0)));
  if (taken.open()) return taken;
  const int error = errno;
  if (error == ESRCH) return ended(process_);
  const std::string what = "the memory that process " + std::to_string(process_) + " shares ";
  if (error == EBADF) {
    return SPILLWAY_ERROR(Code::kNotReady,
                          what + "is no longer shared. Keep the tensor alive in the sender.");
  }
  if (error == EPERM) {
    return SPILLWAY_ERROR(Code::kNotReady,
                          what +
                              "may not be opened (pidfd_getfd: EPERM). Let processes of one user "
                              "look at each other with `sysctl kernel.yama.ptrace_scope=0`, or, in "
                              "a container, give it the capability SYS_PTRACE.");
  }
  if (error == EMFILE || error == ENFILE) {
    return SPILLWAY_ERROR(Code::kNotReady,
                          what + "takes more open files than are allowed. Raise `ulimit -n`.");
  }
  return SPILLWAY_ERROR(Code::kNotReady,
                        what + "cannot be opened: pidfd_getfd failed (" +
                            std::generic_category().message(error) + "). Use Linux 5.6 or later.");
}

}  // namespace spillway
