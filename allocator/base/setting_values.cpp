// SPDX-License-Identifier: Apache-2.0
#include "allocator/base/setting_values.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>

namespace spillway::settings {
namespace {

bool is_digit(char each) {
  return each >= '0' && each <= '9';
}

/// A number that begins with a digit, and the text after it.
std::optional<std::pair<double, std::string_view>> with_unit(std::string_view text) {
  if (text.empty() || !is_digit(text.front())) return std::nullopt;
  const auto number = read_decimal(text);
  if (!number) return std::nullopt;
  return std::pair(*number, text);
}

}  // namespace

std::optional<double> read_decimal(std::string_view& text) {
  const auto digits_from = [&](std::size_t at) {
    while (at < text.size() && is_digit(text[at]))
      ++at;
    return at;
  };
  std::size_t end = digits_from(0);
  if (end < text.size() && text[end] == '.') {
    const std::size_t fraction = end + 1;
    end = digits_from(fraction);
    if (end == fraction) return std::nullopt;
  }
  double number = 0;
  // Only overflow fails here, and underflow, which no setting needs.
  const auto read =
      std::from_chars(text.data(), text.data() + end, number, std::chars_format::fixed);
  if (end == 0 || read.ec != std::errc()) return std::nullopt;
  text.remove_prefix(end);
  return number;
}

std::optional<long> read_integer(std::string_view text) {
  long number = 0;
  const char* const end = text.data() + text.size();
  const auto read = std::from_chars(text.data(), end, number);
  if (text.empty() || !is_digit(text.front()) || read.ec != std::errc() || read.ptr != end) {
    return std::nullopt;
  }
  return number;
}

std::optional<double> read_number(std::string_view text) {
  const bool negative = text.starts_with('-');
  if (negative) text.remove_prefix(1);
  double number = 0;
  const char* const end = text.data() + text.size();
  if (text.empty() || !is_digit(text.front()) || text.back() == '.') return std::nullopt;
  const auto read = std::from_chars(text.data(), end, number);
  if (read.ec != std::errc() || read.ptr != end) return std::nullopt;
  return negative ? -number : number;
}

std::optional<Bytes> read_size(std::string_view text) {
  constexpr std::array<std::string_view, 5> kUnits = {"B", "KiB", "MiB", "GiB", "TiB"};
  const auto read = with_unit(text);
  if (!read) return std::nullopt;
  const auto& [number, unit] = *read;
  const auto* found = std::find(kUnits.begin(), kUnits.end(), unit.empty() ? "B" : unit);
  if (found == kUnits.end()) return std::nullopt;
  const double bytes = std::ldexp(number, 10 * static_cast<int>(found - kUnits.begin()));
  if (!(bytes < 0x1p63)) return std::nullopt;
  return Bytes{static_cast<std::uint64_t>(bytes)};
}

std::optional<double> read_rate(std::string_view text) {
  constexpr std::array<std::string_view, 4> kUnits = {"KB/s", "MB/s", "GB/s", "TB/s"};
  double scale = 1000;
  for (const std::string_view unit : kUnits) {
    const auto read = with_unit(text);
    if (read && read->second == unit && read->first > 0) return read->first * scale;
    scale *= 1000;
  }
  const auto size = read_size(text);
  if (!size || size->zero()) return std::nullopt;
  return static_cast<double>(size->count());
}

std::optional<double> read_seconds(std::string_view text) {
  constexpr std::pair<std::string_view, double> kUnits[] = {
      {"s", 1}, {"ms", 1e-3}, {"us", 1e-6}, {"ns", 1e-9}};
  const auto read = with_unit(text);
  for (const auto& [unit, seconds] : kUnits) {
    if (read && read->second == unit) return read->first * seconds;
  }
  return std::nullopt;
}

std::optional<Amount> read_amount(std::string_view text) {
  if (text == "auto") return Amount{.automatic = true};
  if (!text.ends_with('%')) {
    const auto size = read_size(text);
    return size ? std::optional(Amount{.bytes = *size}) : std::nullopt;
  }
  const auto percent = with_unit(text);
  if (!percent || percent->second != "%" || !(percent->first > 0 && percent->first <= 100)) {
    return std::nullopt;
  }
  return Amount{.share = percent->first / 100};
}

std::vector<std::string_view> items(std::string_view list) {
  std::vector<std::string_view> found;
  for (std::size_t from = 0; from <= list.size();) {
    const std::size_t to = std::min(list.find(',', from), list.size());
    found.push_back(list.substr(from, to - from));
    from = to + 1;
  }
  return found;
}

std::pair<std::string_view, std::string_view> name_and_value(std::string_view item) {
  const std::size_t equals = std::min(item.find('='), item.size());
  return {item.substr(0, equals), item.substr(std::min(equals + 1, item.size()))};
}

}  // namespace spillway::settings
