// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <pybind11/pybind11.h>

namespace spillway {

/// The Python module's part for micro-batches: python/spillway/_microbatches.py.
void define_microbatches(pybind11::module_& module);

}  // namespace spillway
