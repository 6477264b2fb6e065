// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "allocator/base/bytes.h"
#include "allocator/base/result.h"

#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>

namespace spillway::env {

/// The only readers of the environment. An unset or empty variable gives no value. An invalid value
/// gives kInvalidArgument with the variable, its value and the allowed values.
/// Threads: safe unless another thread calls setenv at the same time.
Result<std::optional<std::string>> text(const char* name);
/// A variable of another project, for which empty and unset differ.
std::optional<std::string> foreign(const char* name);
Result<std::optional<bool>> flag(const char* name);      // 0 or 1
Result<std::optional<Bytes>> size(const char* name);     // 512, 64KiB, 1.5GiB; binary units
Result<std::optional<double>> number(const char* name);  // as read_decimal()
Result<std::optional<long>> whole(const char* name, long least, long most);  // digits only
Result<std::optional<std::string>> choice(const char* name,
                                          std::initializer_list<std::string_view> allowed);

/// Parses the decimal number at the beginning of `text` (12, 1.5 or .5) and removes it from `text`.
/// Empty for anything else. A sign, an exponent, hexadecimal digits, "inf" and "nan" are not part
/// of a number, and a point needs a digit after it. Independent of the locale.
std::optional<double> read_decimal(std::string_view& text);

/// "8GiB" to bytes.
/// Errors: kInvalidArgument for anything but digits, an optional fraction, and B, KiB, MiB, GiB or
/// TiB; for negative sizes; and past 2^63.
Result<Bytes> parse_size(std::string_view value, std::string_view name);

/// Errors: kInvalidArgument for an unknown variable that begins with SPILLWAY_, because a
/// misspelled setting must not be silently ignored. The list of known names is in env.cpp.
Status check_names();

}  // namespace spillway::env
