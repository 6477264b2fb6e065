// SPDX-License-Identifier: Apache-2.0
#include "bench/micro/link.h"

#include <algorithm>

namespace spillway::micro {

using namespace literals;

Bytes Link::largest() {
  // The emulated GPU copies for real, at the speed of this machine's memory.
  return driver::emulated() ? 16_MiB : Bytes{1ULL << 30U};
}

Result<std::unique_ptr<Link>> Link::make(HostKind kind) {
  Probe& probe = micro::probe();
  SPILLWAY_ASSIGN_OR_RETURN(OwnedStream in, OwnedStream::make(probe));
  SPILLWAY_ASSIGN_OR_RETURN(OwnedStream out, OwnedStream::make(probe));
  const Bytes size{2 * largest().count()};
  SPILLWAY_ASSIGN_OR_RETURN(DeviceRange device,
                            DeviceRange::make(probe, 2_MiB, size.count() / (2_MiB).count()));
  std::unique_ptr<Link> made(new Link(std::move(in), std::move(out), std::move(device)));
  SPILLWAY_ASSIGN_OR_RETURN(made->host_, HostMemory::make(probe, kind, size));
  SPILLWAY_ASSIGN_OR_RETURN(made->time_, DeviceTime::make(probe));
  return made;
}

Result<Link*> KeptLink::of(HostKind kind) {
  if (kind_ != kind) {
    kind_.reset();
    link_.reset();  // first: there may be room for one alone
    SPILLWAY_ASSIGN_OR_RETURN(link_, Link::make(kind));
    kind_ = kind;
  }
  return link_.get();
}

Lane Link::lane(const Copies& copies) {
  return {(copies.way == Way::kIn ? in_ : out_).handle(), [this, copies] {
            return submit(copies);
          }};
}

std::array<Lane, 2> Link::both_ways(Bytes size, std::uint64_t count) {
  const auto alternate = [this, size, count] {
    Status status;
    for (std::uint64_t i = 0; i < 2 * count && status.ok(); ++i)
      status = copy(i % 2 == 0 ? Way::kIn : Way::kOut, size, i / 2);
    return status;
  };
  return {Lane{in_.handle(), alternate}, Lane{out_.handle(), [] {
                                                return Status();
                                              }}};
}

Status Link::submit(const Copies& copies) {
  Status status;
  for (std::uint64_t i = 0; i < copies.count && status.ok(); ++i)
    status = copy(copies.way, copies.size, i);
  return status;
}

Status Link::copy(Way way, Bytes size, std::uint64_t index) {
  const driver::Api& api = micro::probe().api();
  const std::uint64_t half = largest().count();
  const std::uint64_t places = half / size.count();
  const std::uint64_t at = (way == Way::kIn ? 0 : half) + index % places * size.count();
  const CUdeviceptr there = device_.at() + at;
  std::byte* here = host_->data() + at;
  return way == Way::kIn
             ? SPILLWAY_CALL(api, MemcpyHtoDAsync, there, here, size.count(), in_.handle())
             : SPILLWAY_CALL(api, MemcpyDtoHAsync, here, there, size.count(), out_.handle());
}

std::uint64_t copies_of(Bytes size) {
  const std::uint64_t enough = Link::largest().count() * (driver::emulated() ? 2 : 1);
  return std::clamp<std::uint64_t>(enough / size.count(), 4, 128);
}

}  // namespace spillway::micro
