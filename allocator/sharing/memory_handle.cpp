// SPDX-License-Identifier: Apache-2.0
#include "allocator/sharing/memory_handle.h"

#include <array>
#include <cstring>
#include <limits>

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

}  // namespace spillway
