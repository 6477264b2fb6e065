// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace spillway::emulator::torch {

/// Brings PyTorch's emulated operators into a process that has PyTorch's CUDA libraries; true when
/// done, and where there is nothing to do. A program without Python needs nothing else.
///
/// Threads: any; one installs, and the others wait for it.
/// Errors: false where it cannot be; the first time stderr says why. PyTorch is then unchanged.
bool install_operators();

}  // namespace spillway::emulator::torch
