// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <pybind11/pybind11.h>

namespace spillway {

/// Models whose parts take turns on the device, for Python.
void define_shards(pybind11::module_& module);

}  // namespace spillway
