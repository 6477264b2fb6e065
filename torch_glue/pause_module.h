// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <pybind11/pybind11.h>

namespace spillway {

/// Adds what python/spillway/_pause.py and memory_saver.py stand on.
void bind_pause(pybind11::module_& module);

}  // namespace spillway
