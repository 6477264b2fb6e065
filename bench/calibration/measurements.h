// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "bench/calibration/memory.h"

namespace spillway::calibration {

/// Each measures one thing, prints a Record per result, stops early where the time is up, and
/// returns the first error.

/// Time and rate of copies in both directions, by size.
Status measure_copies(Probe& probe,
                      const HostBuffer& host,
                      const DeviceRange& device,
                      Pinning pinning);
/// The rate of each direction while the other is busy all the time.
Status measure_duplex(Probe& probe, const HostBuffer& host, const DeviceRange& device);
/// How much a kernel bound by arithmetic, or by device memory, slows down beside copies. Requires:
/// kernels.
Status measure_interference(Probe& probe, const HostBuffer& host, const DeviceRange& device);
/// What a call costs the host: event record, stream wait, query, copies, launch.
Status measure_calls(Probe& probe, const HostBuffer& host, const DeviceRange& device);
/// Reserve, create, map, access, unmap and release of device memory, by chunk size.
Status measure_mapping(Probe& probe);
/// How fast host memory can be touched and pinned, at sizes that show whether the rate is
/// sustained.
Status measure_pinning(Probe& probe);

}  // namespace spillway::calibration
