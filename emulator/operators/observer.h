// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace spillway::operators {

/// From now on it is known where in the program each operator begins; with the order checker, it
/// hears of that, and of every CPU operator on page-locked memory. For the length of the process;
/// to be called once.
void observe_operators();

/// What the calling thread is at: the outermost operator or node of a backward pass, and the
/// program's lines, of the forward pass where there are no others. Null where nothing is known.
/// Both live indefinitely.
struct CurrentOp {
  const char* name = nullptr;
  const char* place = nullptr;
};

CurrentOp doing_now();

}  // namespace spillway::operators
