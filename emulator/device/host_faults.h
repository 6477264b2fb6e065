// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace spillway::emulator {

/// From now on, the host's touching device memory that is not mapped says so in one line on stderr,
/// before the process goes the way that it would have gone: to the handler that was there before,
/// or to its end by the signal. Once in a process.
void report_host_faults();

}  // namespace spillway::emulator
