// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace spillway::operators {

/// From now on the order checker hears of every CPU operator on page-locked memory, and of where in
/// the program each operator begins. For the length of the process.
void observe_operators();

}  // namespace spillway::operators
