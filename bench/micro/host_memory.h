// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "allocator/transfer/host_arena.h"
#include "bench/micro/micro.h"

#include <memory>

namespace spillway::micro {

/// Where a copy's end on the host comes from.
enum class HostKind {
  kPageable,  // the system's memory as it is: the driver copies through memory of its own
  kPinned,    // cuMemHostAlloc, as cudaHostAlloc and torch's pinned memory
  kArena,     // Spillway's: huge pages where the machine gives them, registered
};

constexpr const char* kind_name(HostKind kind) {
  constexpr const char* kNames[] = {"pageable", "pinned", "arena"};
  return kNames[static_cast<int>(kind)];
}

/// Host memory of one kind, all of it touched. Ownership: owns it; borrows the probe.
class HostMemory {
 public:
  /// Errors: kOutOfHostMemory, kDriver.
  static Result<std::unique_ptr<HostMemory>> make(Probe& probe, HostKind kind, Bytes size);
  ~HostMemory();
  HostMemory(const HostMemory&) = delete;
  HostMemory& operator=(const HostMemory&) = delete;

  [[nodiscard]] std::byte* data() const { return data_; }

  [[nodiscard]] HostKind kind() const { return kind_; }

 private:
  HostMemory(Probe& probe, HostKind kind, Bytes size) : probe_(probe), kind_(kind), size_(size) {}

  Probe& probe_;
  const HostKind kind_;
  const Bytes size_;
  std::byte* data_ = nullptr;
  std::unique_ptr<HostArena> arena_;
  HostSlot slot_;
};

}  // namespace spillway::micro
