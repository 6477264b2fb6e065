// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <pybind11/pybind11.h>

namespace spillway {

/// Python bindings of scopes, roles and accounting by tag, for python/spillway/tags.py, roles.py
/// and summary.py.
void define_tags(pybind11::module_& module);

}  // namespace spillway
