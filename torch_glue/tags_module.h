// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <pybind11/pybind11.h>

namespace spillway {

/// Scopes, roles and the accounting by tag, as python/spillway/_tag.py, roles.py and _summary.py
/// wrap them.
void define_tags(pybind11::module_& module);

}  // namespace spillway
