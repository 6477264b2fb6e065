// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "allocator/base/result.h"

#include <string>
#include <vector>

namespace spillway {

/// The kernels of the next `steps` steps go to the run log, by hooks/launch_watch.h. CUPTI is
/// looked for in these folders, too. Requires: a run log is written. Threads: safe. Errors: those
/// of CuptiApi::load and LaunchWatch::start; nothing is watched then.
Status watch_kernels(int steps, const std::vector<std::string>& cupti_folders);

/// To be called when a step ends, before the run log hears of it. Off, it costs one relaxed load
/// and another.
void kernels_step_ended();

}  // namespace spillway
