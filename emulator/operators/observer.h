// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

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

/// The innermost lines of the program's own Python code on this thread ("train.py:12 in step, …");
/// null if there are none. The same pointer for the same lines; outlives the process.
///
/// Threads: takes Python's interpreter lock. The caller must hold no lock that a thread with the
/// interpreter lock may wait for.
const char* python_location();

/// A copy that outlives the process, the same pointer for the same text.
/// Threads: safe, without a lock that orders threads for the order checker.
const char* permanent_copy(std::string text);

}  // namespace spillway::operators
