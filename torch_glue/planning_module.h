// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <pybind11/pybind11.h>

namespace spillway {

/// What is known of a budget's plan, as python/spillway/planning.py wraps it.
void define_planning(pybind11::module_& module);

}  // namespace spillway
