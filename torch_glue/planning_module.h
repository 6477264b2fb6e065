// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <pybind11/pybind11.h>

namespace spillway {

/// Python bindings of a budget's plans, for python/spillway/planning.py.
void define_planning(pybind11::module_& module);

}  // namespace spillway
