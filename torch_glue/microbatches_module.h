// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <pybind11/pybind11.h>

namespace spillway {

/// Python bindings of micro-batches, for python/spillway/microbatches.py.
void define_microbatches(pybind11::module_& module);

}  // namespace spillway
