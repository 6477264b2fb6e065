// SPDX-License-Identifier: Apache-2.0
// calibration SECONDS [KERNELS]: measures link, copies, calls, mapping and pinning of device 0; one
// JSON object per line.
#include "bench/calibration/measurements.h"

#include <cstdio>
#include <cstdlib>

namespace spillway::calibration {
namespace {

using namespace literals;

/// Prints an error as a Record, so that the other measurements still run.
bool report(const Status& status) {
  if (!status.ok()) Record("error").text("message", status.message()).print();
  return status.ok();
}

Status measure_link(Probe& probe, Pinning pinning, Bytes size) {
  SPILLWAY_ASSIGN_OR_RETURN(const DeviceRange device,
                            DeviceRange::make(probe, 2_MiB, size.count() / (2_MiB).count()));
  SPILLWAY_ASSIGN_OR_RETURN(const HostBuffer host, HostBuffer::make(probe, pinning, size));
  SPILLWAY_RETURN_IF_ERROR(measure_copies(probe, host, device, pinning));
  SPILLWAY_RETURN_IF_ERROR(measure_duplex(probe, host, device));
  if (pinning != Pinning::kHugePages) return {};
  SPILLWAY_RETURN_IF_ERROR(measure_calls(probe, host, device));
  if (!probe.has_kernels()) return {};
  return measure_interference(probe, host, device);
}

int run(Seconds budget, const std::string& kernels) {
  auto opened = Probe::open(kernels, budget);
  if (!report(opened.status())) return 1;
  Probe& probe = *opened.value();
  Record("device")
      .text("name", probe.name())
      .bytes("free", probe.free_memory())
      .bytes("total", probe.total_memory())
      .print();
  bool ok = true;
  // Without kernels there is no device time worth measuring: enough bytes to show that every path
  // works.
  const Bytes size = probe.has_kernels() ? 2_GiB : 16_MiB;
  for (const Pinning pinning : {Pinning::kHugePages, Pinning::kDriver, Pinning::kSmallPages}) {
    if (probe.has_kernels() || pinning != Pinning::kDriver)
      ok &= report(measure_link(probe, pinning, size));
  }
  ok &= report(measure_mapping(probe));
  if (probe.has_kernels()) ok &= report(measure_pinning(probe));
  return ok ? 0 : 1;
}

}  // namespace
}  // namespace spillway::calibration

int main(int count, char** words) {
  char* rest = nullptr;
  const double seconds = count >= 2 ? std::strtod(words[1], &rest) : 0;
  if (count < 2 || count > 3 || *rest != '\0' || !(seconds > 0)) {
    std::fputs("usage: calibration SECONDS [KERNELS]\n", stderr);
    return 2;
  }
  return spillway::calibration::run(spillway::calibration::Seconds(seconds),
                                    count == 3 ? words[2] : "");
}
