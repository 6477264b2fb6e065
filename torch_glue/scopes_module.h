// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <pybind11/pybind11.h>

namespace spillway {

/// Scopes that Python opens and closes on a thread, safe against signal handlers that raise
/// (Ctrl-C). Such a handler finds a scope either open and recorded, or not open. Python runs signal
/// handlers between bytecodes, at the beginning of a function and after calls too. Opening and
/// recording is therefore one call of a native function, as is closing and removing.
/// python/spillway/_scope.py describes the protocol.
void define_scopes(pybind11::module_& module);

}  // namespace spillway
