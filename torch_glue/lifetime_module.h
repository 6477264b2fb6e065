// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <pybind11/pybind11.h>

namespace spillway {

/// Python bindings of recordings and traces, for python/spillway/trace.py.
void define_lifetimes(pybind11::module_& module);

}  // namespace spillway
