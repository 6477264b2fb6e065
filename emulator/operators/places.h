// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace spillway::operators {

/// The innermost lines of the program's own Python code on this thread ("train.py:12 in step, …"),
/// null where there are none. The same pointer for the same lines; lives indefinitely.
///
/// Threads: takes Python's interpreter lock; the caller must hold no lock that a thread with the
/// interpreter lock may want.
const char* python_place();

/// A copy that lives as long as the process, the same pointer for the same text. Threads: safe, and
/// no lock that orders threads for the order checker.
const char* indefinitely(std::string text);

}  // namespace spillway::operators
