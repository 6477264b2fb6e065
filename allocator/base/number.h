// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace spillway {

// Numbers as text, the same in every locale: the decimal separator is a point, and digits are not
// grouped. Threads: safe, also while the program changes its locale.

/// All of `text` as a finite number, such as 0.5, -3 or 1e-3. Empty for anything else.
std::optional<double> parse_number(std::string_view text);

/// The shortest text that parse_number reads as `value`, such as 0.5.
std::string to_text(double value);

/// With exactly `decimals` digits behind the point, at most 16.
std::string to_text(double value, int decimals);

}  // namespace spillway
