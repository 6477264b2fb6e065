// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace spillway {

// Locale-independent numbers as text: the decimal separator is a point, and digits are not grouped.
// Threads: safe, also while the program changes its locale.

/// The shortest text that std::from_chars reads as `value`, such as 0.5.
std::string to_text(double value);

/// With exactly `decimals` digits after the point, at most 16.
std::string to_text(double value, int decimals);

}  // namespace spillway
