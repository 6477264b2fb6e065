// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace spillway::operators {

/// Tracks the program location of each operator from now on. With the order checker, reports it
/// there, and every CPU operator on page-locked memory. Permanent; call it once.
void observe_operators();

/// The calling thread's outermost operator or backward node, and the program's lines; those of the
/// forward pass if there are no others. Null if unknown. Both outlive the process.
struct CurrentOp {
  const char* name = nullptr;
  const char* location = nullptr;
};

CurrentOp doing_now();

}  // namespace spillway::operators
