// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <pybind11/pybind11.h>

namespace spillway {

/// The run log, as python/spillway/recorder.py starts it.
void define_run_log(pybind11::module_& module);

}  // namespace spillway
