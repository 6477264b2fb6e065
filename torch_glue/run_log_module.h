// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <pybind11/pybind11.h>

namespace spillway {

/// Python bindings of the run log, for python/spillway/recorder.py.
void define_run_log(pybind11::module_& module);

}  // namespace spillway
