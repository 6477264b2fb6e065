// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "emulator/device/machine.h"

namespace spillway::emulator {

/// Whether a kernel on `device` may read (or write) every byte of `range`: device memory that this
/// device can access, or page-locked host memory.
///
/// If not, the illegal-address error is sticky as on a GPU, and one line names `operation`, the
/// range and the reason. `granted` is set to the whole surrounding range with the same right.
bool touch(
    Machine& machine, int device, Range range, bool write, const char* operation, Range* granted);

/// Installs a signal handler that reports host accesses to unmapped device memory in one line on
/// stderr. Then the previous handler runs, or the signal ends the process. Once per process.
void report_host_faults();

/// As spillway_emulator_describe_addresses.
void describe_addresses(const char* (*describe)(std::uintptr_t at));

/// That function's text for the address, to be appended to a report; empty if it has none.
const char* description_of(std::uintptr_t at);

}  // namespace spillway::emulator
