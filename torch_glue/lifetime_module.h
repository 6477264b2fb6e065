// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <pybind11/pybind11.h>

namespace spillway {

/// Recordings and traces, as python/spillway/trace.py wraps them.
void define_lifetimes(pybind11::module_& module);

}  // namespace spillway
