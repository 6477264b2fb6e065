// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "bench/micro/device_range.h"
#include "bench/micro/device_time.h"
#include "bench/micro/host_memory.h"

#include <array>
#include <memory>
#include <optional>

namespace spillway::micro {

/// Copies of one size in one direction, one after the other over the buffers.
struct Copies {
  Way way;
  Bytes size;
  std::uint64_t count;

  [[nodiscard]] double bytes() const {
    return static_cast<double>(size.count()) * static_cast<double>(count);
  }
};

/// Both ends of copies: a range of device memory, host memory of one kind, and a stream for each
/// direction. The directions use different halves, so that nothing is read and written at once.
class Link {
 public:
  /// Errors: kOutOfDeviceMemory, kOutOfHostMemory, kDriver.
  static Result<std::unique_ptr<Link>> make(HostKind kind);

  /// The most that one copy may have.
  static Bytes largest();

  /// `copies` as a lane of its direction's stream. Requires: the Link outlives it, and
  /// copies.size <= largest().
  Lane lane(const Copies& copies);

  /// `count` copies in each direction, submitted alternately. Requires: as lane().
  std::array<Lane, 2> both_ways(Bytes size, std::uint64_t count);

  /// When the host must not hold the lanes.
  [[nodiscard]] DeviceTime::Hold hold() const {
    return host_->kind() == HostKind::kPageable ? DeviceTime::Hold::kNot
                                                : DeviceTime::Hold::kUntilQueued;
  }

  DeviceTime& time() { return *time_; }

 private:
  Link(OwnedStream in, OwnedStream out, DeviceRange device)
      : in_(std::move(in)), out_(std::move(out)), device_(std::move(device)) {}

  Status submit(const Copies& copies);
  Status copy(Way way, Bytes size, std::uint64_t index);

  OwnedStream in_;
  OwnedStream out_;
  DeviceRange device_;
  std::unique_ptr<HostMemory> host_;
  std::unique_ptr<DeviceTime> time_;
};

/// The Link that was used last, kept for the benchmarks that follow: page-locking its host memory
/// takes longer than the copies over it.
class KeptLink {
 public:
  /// Errors: as Link::make.
  Result<Link*> of(HostKind kind);

 private:
  std::optional<HostKind> kind_;
  std::unique_ptr<Link> link_;
};

/// How many copies of `size` one measurement makes: enough bytes for the events' resolution, and
/// enough calls for the host's first one not to count.
std::uint64_t copies_of(Bytes size);

}  // namespace spillway::micro
