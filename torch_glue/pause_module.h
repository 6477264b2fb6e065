// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <pybind11/pybind11.h>

namespace spillway {

/// Adds the bindings used by python/spillway/pause.py and memory_saver.py.
void bind_pause(pybind11::module_& module);

}  // namespace spillway
