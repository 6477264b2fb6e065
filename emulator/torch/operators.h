// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace spillway::emulator::torch {

/// Installs PyTorch's emulated operators in a process with PyTorch's CUDA libraries; true on
/// success, and if there is nothing to do. A program without Python needs no other call.
///
/// Threads: any; one installs, and the others wait for it.
/// Errors: false if it fails; the first time stderr has the reason. PyTorch is then unchanged.
bool install_operators();

}  // namespace spillway::emulator::torch
