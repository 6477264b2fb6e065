// SPDX-License-Identifier: Apache-2.0
#include "allocator/transfer/pinned_pieces.h"

#include <unistd.h>

#include <algorithm>
#include <string>

namespace spillway {
namespace {

using namespace literals;

/// From here on rounding to huge pages costs less than a hundredth.
constexpr Bytes kLarge = 256_MiB;
constexpr Bytes kHugePage = 2_MiB;

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
  if (size > kNoMachineHasThis) return size;
  return size.rounded_up(size < kLarge ? page : kHugePage);
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

  SPILLWAY_ASSIGN_OR_RETURN(const HostPages pages, map_host_pages(size, node_));
  const driver::CurrentDevice current(*device_.api, device_.context);
  const Status status = SPILLWAY_CALL(
      *device_.api, MemHostRegister, pages.at, size.count(), CU_MEMHOSTREGISTER_PORTABLE);
  if (!status.ok()) {
    unmap_host_pages(pages);
    return refused(size, status.message());
  }
  driver::count_registration();
  pieces_.emplace(pages.at, pages);
  registered_ += size;
  registered_peak_ = std::max(registered_peak_, registered_);
  ++registrations_;
  return pages.at;
}

void PinnedPieces::remove(std::byte* piece) {
  const auto at = pieces_.find(piece);
  SPILLWAY_CHECK(at != pieces_.end());
  const driver::CurrentDevice current(*device_.api, device_.context);
  device_.api->MemHostUnregister(
      piece);  // fails only where the context is gone, and the registration with it
  unmap_host_pages(at->second);
  registered_ -= at->second.size;
  pieces_.erase(at);
}

}  // namespace spillway
