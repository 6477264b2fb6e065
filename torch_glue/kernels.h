// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "allocator/base/result.h"

#include <string>
#include <vector>

namespace spillway {

/// Logs the kernels of the next `steps` steps in the run log, by hooks/kernel_names/launch_watch.h.
/// Searches for CUPTI in these directories too. Requires: a run log is being written. Threads:
/// safe. Errors: those of CuptiApi::load and LaunchWatch::start; kNotReady where the build has no
/// kernel names. Nothing is logged then.
Status watch_kernels(int steps, const std::vector<std::string>& cupti_folders);

/// Call it at the end of a step, before the run log's step_ended(). While off, it costs two relaxed
/// loads.
void kernels_step_ended();

}  // namespace spillway
