// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <pybind11/pybind11.h>

namespace spillway {

/// Scopes, roles and the accounting by tag, as python/spillway/tags.py, roles.py and summary.py
/// wrap them.
void define_tags(pybind11::module_& module);

}  // namespace spillway
