// SPDX-License-Identifier: Apache-2.0
#include "bench/calibration/copy.h"
#include "bench/calibration/measurements.h"

#include <algorithm>
#include <array>

namespace spillway::calibration {
namespace {

using namespace literals;

constexpr int kRounds = 5;

}  // namespace

Status measure_copies(Probe& probe,
                      const HostBuffer& host,
                      const DeviceRange& device,
                      Pinning pinning) {
  SPILLWAY_ASSIGN_OR_RETURN(const OwnedStream stream, OwnedStream::make(probe));
  for (const Way way : {Way::kIn, Way::kOut}) {
    for (Bytes size = 64_KiB; size <= std::min(host.size(), device.size());
         size = Bytes{size.count() * 4}) {
      const std::uint64_t total = std::min(host.size(), device.size()).count();
      const std::uint64_t count = std::clamp<std::uint64_t>(total / size.count(), 4, 256);
      std::vector<double> times;
      for (int round = 0; round < kRounds && probe.enough_time(Seconds(1)); ++round) {
        auto taken = probe.stream_time_sync(stream.handle(), [&] {
          Status status;
          for (std::uint64_t i = 0; i < count && status.ok(); ++i) {
            const Bytes at{i * size.count() % (total - size.count() + 1) / 512 * 512};
            status = copy(probe, way, host, device, at, size, stream.handle());
          }
          return status;
        });
        if (!taken.ok()) return taken.status();
        times.push_back(taken.value().count() / static_cast<double>(count));
      }
      if (times.empty()) return {};
      const double seconds = median(times);
      Record("copy")
          .text("pinning", name(pinning))
          .text("direction", name(way))
          .bytes("bytes", size)
          .number("us", seconds * 1e6)
          .number("GB_per_s", static_cast<double>(size.count()) / 1e9 / seconds)
          .print();
    }
  }
  return {};
}

Status measure_duplex(Probe& probe, const HostBuffer& host, const DeviceRange& device) {
  constexpr int kMeasured = 24;
  constexpr int kOpposite = 72;  // outlives the measured direction
  SPILLWAY_ASSIGN_OR_RETURN(const OwnedStream measured, OwnedStream::make(probe));
  SPILLWAY_ASSIGN_OR_RETURN(const OwnedStream opposite, OwnedStream::make(probe));
  const Bytes size =
      std::min({64_MiB, Bytes{host.size().count() / 4}, Bytes{device.size().count() / 4}});
  for (const Way way : {Way::kIn, Way::kOut}) {
    const Way other = way == Way::kIn ? Way::kOut : Way::kIn;
    const Bytes half{std::min(host.size(), device.size()).count() / 2 / 512 * 512};
    std::vector<double> rates;
    for (int round = 0; round < kRounds && probe.enough_time(Seconds(2)); ++round) {
      Status status;
      for (int i = 0; i < kOpposite && status.ok(); ++i) {
        status = copy(probe, other, host, device, half, size, opposite.handle());
      }
      SPILLWAY_RETURN_IF_ERROR(status);
      auto taken = probe.stream_time_sync(measured.handle(), [&] {
        Status each;
        for (int i = 0; i < kMeasured && each.ok(); ++i) {
          each = copy(probe, way, host, device, Bytes{}, size, measured.handle());
        }
        return each;
      });
      if (!taken.ok()) return taken.status();
      SPILLWAY_RETURN_IF_ERROR(probe.finish_sync(opposite.handle()));
      rates.push_back(kMeasured * static_cast<double>(size.count()) / 1e9 / taken.value().count());
    }
    if (!rates.empty())
      Record("duplex").text("direction", name(way)).number("GB_per_s", median(rates)).print();
  }
  return {};
}

Status measure_interference(Probe& probe, const HostBuffer& host, const DeviceRange& device) {
  constexpr int kCopies = 40;
  constexpr int kLaunches = 20;
  const Bytes size = std::min(64_MiB, Bytes{host.size().count() / 4});
  SPILLWAY_ASSIGN_OR_RETURN(const OwnedStream compute, OwnedStream::make(probe));
  SPILLWAY_ASSIGN_OR_RETURN(const OwnedStream in, OwnedStream::make(probe));
  SPILLWAY_ASSIGN_OR_RETURN(const OwnedStream out, OwnedStream::make(probe));
  SPILLWAY_ASSIGN_OR_RETURN(const DeviceRange data, DeviceRange::make(probe, 512_MiB, 4));
  constexpr std::uint64_t kHalf = std::uint64_t{1} << 30U;
  CUdeviceptr to = data.at();
  CUdeviceptr from = data.at() + kHalf;
  unsigned long long count = kHalf / 16;
  int rounds = 20000;
  const std::array<std::pair<const char*, std::vector<void*>>, 2> kernels = {
      {{"arithmetic", {&to, &rounds}}, {"stream", {&to, &from, &count}}}};
  for (const auto& [kernel, arguments] : kernels) {
    for (const unsigned copies : {0U, 1U, 2U, 3U}) {  // bits: out, in
      std::vector<double> times;
      for (int round = 0; round < kRounds && probe.enough_time(Seconds(2)); ++round) {
        for (int i = 0; i < kCopies; ++i) {
          if ((copies & 1U) != 0) {
            SPILLWAY_RETURN_IF_ERROR(
                copy(probe, Way::kOut, host, device, Bytes{}, size, out.handle()));
          }
          if ((copies & 2U) != 0) {
            SPILLWAY_RETURN_IF_ERROR(copy(probe, Way::kIn, host, device, size, size, in.handle()));
          }
        }
        auto taken = probe.stream_time_sync(compute.handle(), [&] {
          Status status;
          for (int i = 0; i < kLaunches && status.ok(); ++i) {
            status = probe.launch(kernel, compute.handle(), {.x = 132 * 8}, 256, arguments);
          }
          return status;
        });
        if (!taken.ok()) return taken.status();
        SPILLWAY_RETURN_IF_ERROR(probe.finish_sync(out.handle()));
        SPILLWAY_RETURN_IF_ERROR(probe.finish_sync(in.handle()));
        times.push_back(taken.value().count() / kLaunches);
      }
      if (times.empty()) return {};
      constexpr std::array kBeside = {"none", "device to host", "host to device", "both"};
      Record("interference")
          .text("kernel", kernel)
          .text("copies", kBeside.at(copies))
          .number("ms", median(times) * 1e3)
          .print();
    }
  }
  return {};
}

}  // namespace spillway::calibration
