// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace spillway::emulator {

/// Installs a signal handler that reports host accesses to unmapped device memory in one line on
/// stderr. Then the previous handler runs, or the signal ends the process. Once per process.
void report_host_faults();

}  // namespace spillway::emulator
