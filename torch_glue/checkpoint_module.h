// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <pybind11/pybind11.h>

namespace spillway {

/// Python bindings of checkpointed calls.
void define_checkpoints(pybind11::module_& module);

}  // namespace spillway
