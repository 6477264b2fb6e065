// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace spillway::operators {

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
