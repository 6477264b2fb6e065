// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "allocator/base/bytes.h"

#include <optional>
#include <string_view>
#include <utility>
#include <vector>

namespace spillway::settings {

// Values of settings as text. All are independent of the locale. The result is empty for anything
// but the described form: without sign, exponent (but in read_number), hexadecimal digits, "inf",
// "nan", spaces, or a point that has no digit after it.

/// Parses the decimal number at the beginning of `text` (12, 1.5 or .5) and removes it from `text`.
std::optional<double> read_decimal(std::string_view& text);
/// "12" to 12.
std::optional<long> read_integer(std::string_view text);
/// "3.35e12" or "-1" to a number.
std::optional<double> read_number(std::string_view text);
/// "512", "64KiB" or "1.5GiB" to bytes, up to 2^63.
std::optional<Bytes> read_size(std::string_view text);
/// "55GB/s" (decimal units), or a size for each second, to bytes per second above 0.
std::optional<double> read_rate(std::string_view text);
/// "3us" or "0.5ms" to seconds.
std::optional<double> read_seconds(std::string_view text);

/// An amount of device memory: bytes, a share of all, or a share of what is available.
struct Amount {
  Bytes bytes{};
  double share = 0;
  bool automatic = false;
};

/// "20GiB", "80%" or "auto"; a share is above 0 % and at most 100 %.
std::optional<Amount> read_amount(std::string_view text);

/// The items of a list that is separated by commas.
std::vector<std::string_view> items(std::string_view list);
/// The parts of "name=value"; the second is empty without "=".
std::pair<std::string_view, std::string_view> name_and_value(std::string_view item);

}  // namespace spillway::settings
