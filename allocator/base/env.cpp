// SPDX-License-Identifier: Apache-2.0
#include "allocator/base/env.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdlib>

namespace spillway::env {
namespace {

constexpr auto kKnown = std::to_array<std::string_view>({
    "SPILLWAY_LOG",
    "SPILLWAY_DISABLE",
    "SPILLWAY_PINNED_LIMIT",
    "SPILLWAY_NODE_PINNED_LIMIT",
    "SPILLWAY_PLAN_REPLAY",
    "SPILLWAY_MEMORY_LIMIT",
    "SPILLWAY_BUDGET",
    "SPILLWAY_TIME_LIMIT",
    "SPILLWAY_OVER_BUDGET",
    "SPILLWAY_PLANS",
    "SPILLWAY_OFFLOAD_RATIO",
    "SPILLWAY_TAG_RATIO",
    "SPILLWAY_RECOMPUTE",
    "SPILLWAY_ALLOCATOR",
    "SPILLWAY_REPORT",
    "SPILLWAY_REPORT_KERNELS",
    "SPILLWAY_REPORT_OPERATORS",
    "SPILLWAY_UNSUPPORTED",
    "SPILLWAY_PRELOAD",
    "SPILLWAY_PRELOAD_TRACE",
    "SPILLWAY_EMULATE",
    "SPILLWAY_EMULATE_SCHEDULE",
    "SPILLWAY_EMULATE_CHECK",
    "SPILLWAY_EMULATE_ANSWERS",
    "SPILLWAY_EMULATE_REPORTS",
    "SPILLWAY_EMULATE_DEVICES",
    "SPILLWAY_EMULATE_MEMORY",
    "SPILLWAY_EMULATE_CUDA_CONTEXT",
    "SPILLWAY_EMULATE_CAPABILITY",
    "SPILLWAY_EMULATE_MULTIPROCESSORS",
    "SPILLWAY_EMULATE_RNG",
    "SPILLWAY_EMULATE_FAULT",
    "SPILLWAY_EMULATE_POISON",
    "SPILLWAY_EMULATE_CLOCK",
    "SPILLWAY_EMULATE_LINK_H2D",
    "SPILLWAY_EMULATE_LINK_D2H",
    "SPILLWAY_EMULATE_LATENCY",
    "SPILLWAY_EMULATE_RATES",
    "SPILLWAY_EMULATE_PROFILE",
    "SPILLWAY_EMULATE_SHAPE_ONLY",
    "SPILLWAY_EMULATE_ASSUME",
    "SPILLWAY_DEVELOPER",
    "SPILLWAY_OFFLINE",
});

Status bad(std::string_view name, std::string_view value, std::string_view allowed) {
  return SPILLWAY_ERROR(
      Code::kInvalidArgument,
      std::string(name) + "=" + std::string(value) + ": expected " + std::string(allowed));
}

bool is_digit(char each) {
  return each >= '0' && each <= '9';
}

std::optional<std::string> raw(const char* name) {
  const char* value = std::getenv(name);  // NOLINT(concurrency-mt-unsafe): see the header
  if (value == nullptr || *value == '\0') return std::nullopt;
  return std::string(value);
}

}  // namespace

std::optional<std::string> foreign(const char* name) {
  const char* value = std::getenv(name);  // NOLINT(concurrency-mt-unsafe): see the header
  return value == nullptr ? std::nullopt : std::optional<std::string>(value);
}

Result<std::optional<std::string>> text(const char* name) {
  return raw(name);
}

Result<std::optional<bool>> flag(const char* name) {
  const auto value = raw(name);
  if (!value) return std::optional<bool>();
  if (*value == "0" || *value == "1") return std::optional<bool>(*value == "1");
  return bad(name, *value, "0 or 1");
}

Result<std::optional<double>> number(const char* name) {
  const auto value = raw(name);
  if (!value) return std::optional<double>();
  std::string_view rest(*value);
  const auto parsed = read_decimal(rest);
  if (!parsed || !rest.empty()) return bad(name, *value, "a decimal number such as 0.5");
  return parsed;
}

Result<std::optional<long>> whole(const char* name, long least, long most) {
  const auto value = raw(name);
  if (!value) return std::optional<long>();
  long parsed = 0;
  const char* const end = value->data() + value->size();
  const auto read = std::from_chars(value->data(), end, parsed);
  const bool digits = is_digit(value->front()) && read.ec == std::errc() && read.ptr == end;
  if (!digits || parsed < least || parsed > most) {
    return bad(
        name, *value, "an integer from " + std::to_string(least) + " to " + std::to_string(most));
  }
  return std::optional<long>(parsed);
}

Result<std::optional<std::string>> choice(const char* name,
                                          std::initializer_list<std::string_view> allowed) {
  const auto value = raw(name);
  if (!value || std::find(allowed.begin(), allowed.end(), *value) != allowed.end()) return value;
  std::string list;
  for (const std::string_view each : allowed)
    list += (list.empty() ? "" : ", ") + std::string(each);
  return bad(name, *value, "one of " + list);
}

Result<std::optional<Bytes>> size(const char* name) {
  const auto value = raw(name);
  if (!value) return std::optional<Bytes>();
  SPILLWAY_ASSIGN_OR_RETURN(const Bytes parsed, parse_size(*value, name));
  return std::optional<Bytes>(parsed);
}

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

Result<Bytes> parse_size(std::string_view value, std::string_view name) {
  constexpr std::string_view kAllowed = "a size such as 512, 64KiB or 1.5GiB";
  if (value.empty() || !is_digit(value.front())) return bad(name, value, kAllowed);
  std::string_view unit = value;
  const auto parsed = read_decimal(unit);
  if (!parsed) return bad(name, value, kAllowed);
  constexpr std::array<std::string_view, 5> kUnits = {"B", "KiB", "MiB", "GiB", "TiB"};
  const auto* found = std::find(kUnits.begin(), kUnits.end(), unit.empty() ? "B" : unit);
  if (found == kUnits.end()) return bad(name, value, kAllowed);
  const double bytes = std::ldexp(*parsed, 10 * static_cast<int>(found - kUnits.begin()));
  if (!(bytes < 0x1p63)) return bad(name, value, "a size below 2^63 bytes");
  return Bytes{static_cast<std::uint64_t>(bytes)};
}

Status check_names() {
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view line(*entry);
    const std::string_view name = line.substr(0, line.find('='));
    if (!name.starts_with("SPILLWAY_")) continue;
    if (std::find(kKnown.begin(), kKnown.end(), name) != kKnown.end()) continue;
    std::string list;
    for (const std::string_view known : kKnown)
      list += (list.empty() ? "" : ", ") + std::string(known);
    return SPILLWAY_ERROR(Code::kInvalidArgument,
                          std::string(name) + ": unknown setting. Use one of " + list + ".");
  }
  return {};
}

}  // namespace spillway::env
