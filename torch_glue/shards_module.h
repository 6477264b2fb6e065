// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <pybind11/pybind11.h>

namespace spillway {

/// Python bindings of models whose parts share the device in rotation.
void define_shards(pybind11::module_& module);

}  // namespace spillway
