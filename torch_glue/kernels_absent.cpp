// SPDX-License-Identifier: Apache-2.0
// In place of kernels.cpp in a build without SPILLWAY_KERNEL_NAMES.
#include "torch_glue/kernels.h"

namespace spillway {

Status watch_kernels(int, const std::vector<std::string>&) {
  return SPILLWAY_ERROR(Code::kNotReady,
                        "this build of Spillway cannot name kernels. Build it with "
                        "-DSPILLWAY_KERNEL_NAMES=ON.");
}

void kernels_step_ended() {}

}  // namespace spillway
