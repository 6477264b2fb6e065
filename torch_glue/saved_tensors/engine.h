// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace spillway {

/// Stands in front of the autograd engine from now on: saved tensors of open regions get Spillway's
/// hooks, everything else goes to the engine that was there. Doing it twice changes nothing.
/// Threads: safe. Works with and without Python.
void install_engine();

}  // namespace spillway
