// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <pybind11/pybind11.h>

namespace spillway {

/// What Python opens on a thread and closes again, such that a signal handler that raises (Ctrl-C)
/// finds it open and remembered, or not open. Python runs signal handlers between bytecodes, also
/// where a function begins and after it has called another. So opening and remembering is one call
/// of a native function, and so is closing and forgetting; python/spillway/_scope.py has the
/// protocol.
void define_scopes(pybind11::module_& module);

}  // namespace spillway
