// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <pybind11/pybind11.h>

namespace spillway {

/// The runtime's statistics as documented by spillway.stats().
pybind11::dict stats_dict();

}  // namespace spillway
