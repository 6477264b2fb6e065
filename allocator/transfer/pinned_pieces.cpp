// SPDX-License-Identifier: Apache-2.0
#include "allocator/transfer/pinned_pieces.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <string>

namespace spillway {
namespace {

Status refused(Bytes size, const std::string& why) {
  return SPILLWAY_ERROR(
      Code::kOutOfHostMemory,
      "no pinned host memory for " + std::to_string(size.count()) + " bytes: " + why);
}

}  // namespace

PinnedPieces::~PinnedPieces() {
  while (!pieces_.empty())
    remove(pieces_.begin()->first);
}

Bytes PinnedPieces::whole_pages(Bytes size) {
  static const Bytes page{static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE))};
  return size > kNoMachineHasThis ? size : size.rounded_up(page);
}

Result<std::byte*> PinnedPieces::add(Bytes size) {
  size = whole_pages(size);
  if (size.zero() || size > kNoMachineHasThis) return refused(size, "no machine has that much");
  if (!limit_.zero() && registered_ + size > limit_) {
    return refused(size,
                   std::to_string(registered_.count()) +
                       " are pinned and SPILLWAY_PINNED_LIMIT is " +
                       std::to_string(limit_.count()));
  }

  void* mapped =
      mmap(nullptr, size.count(), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapped == MAP_FAILED) return refused(size, "the machine has none left");
  // Huge pages make registration and copies cheaper; a kernel without them refuses, and nothing is
  // lost.
  madvise(mapped, size.count(), MADV_HUGEPAGE);
  // A forked child that writes to a pinned page would move the parent's page away from under the
  // device.
  madvise(mapped, size.count(), MADV_DONTFORK);

  const driver::CurrentDevice current(*device_.api, device_.context);
  const Status status = SPILLWAY_CALL(
      *device_.api, MemHostRegister, mapped, size.count(), CU_MEMHOSTREGISTER_PORTABLE);
  if (!status.ok()) {
    munmap(mapped, size.count());
    return refused(size, status.message());
  }
  driver::count_registration();
  auto* piece = static_cast<std::byte*>(mapped);
  pieces_.emplace(piece, size);
  registered_ += size;
  registered_peak_ = std::max(registered_peak_, registered_);
  ++registrations_;
  return piece;
}

void PinnedPieces::remove(std::byte* piece) {
  const auto at = pieces_.find(piece);
  SPILLWAY_CHECK(at != pieces_.end());
  const driver::CurrentDevice current(*device_.api, device_.context);
  device_.api->MemHostUnregister(
      piece);  // fails only where the context is gone, and the registration with it
  munmap(piece, at->second.count());
  registered_ -= at->second;
  pieces_.erase(at);
}

}  // namespace spillway
