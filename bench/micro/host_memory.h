// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "allocator/transfer/host_arena.h"
#include "bench/micro/micro.h"

#include <memory>

namespace spillway::micro {

/// Where a copy's end on the host comes from.
enum class HostKind {
  kPageable,    // the system's memory as it is: the driver copies through memory of its own
  kPinned,      // cuMemHostAlloc, as cudaHostAlloc and torch's pinned memory
  kArena,       // Spillway's: huge pages where the machine gives them, registered
  kHugePages,   // mapped, advised to use huge pages, touched and registered
  kSmallPages,  // the same with small pages
};

constexpr const char* kind_name(HostKind kind) {
  constexpr const char* kNames[] = {"pageable", "pinned", "arena", "huge_pages", "small_pages"};
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

  /// How long touching every page took, by all processors; zero unless the system mapped the
  /// memory.
  [[nodiscard]] Seconds touched() const { return touched_; }

  /// How long cuMemHostRegister took; zero for other kinds than kHugePages and kSmallPages.
  [[nodiscard]] Seconds registered() const { return registered_; }

 private:
  static constexpr Bytes kHugePage{2U << 20U};

  [[nodiscard]] bool is_registered() const { return kind_ >= HostKind::kHugePages; }

  Status map();

  HostMemory(Probe& probe, HostKind kind, Bytes size) : probe_(probe), kind_(kind), size_(size) {}

  Probe& probe_;
  const HostKind kind_;
  const Bytes size_;
  std::byte* data_ = nullptr;
  void* mapping_ = nullptr;
  Seconds touched_{};
  Seconds registered_{};
  std::unique_ptr<HostArena> arena_;
  HostSlot slot_;
};

}  // namespace spillway::micro
