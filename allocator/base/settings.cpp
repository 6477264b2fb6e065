// SPDX-License-Identifier: Apache-2.0
#include "allocator/base/settings.h"

#include "allocator/base/setting_values.h"

#include <unistd.h>

#include <algorithm>
#include <iterator>
#include <numeric>
#include <utility>
#include <vector>

namespace spillway::settings {
namespace {

constexpr Setting kSettings[] = {
#define SPILLWAY_SETTING(...) {__VA_ARGS__},
#define SPILLWAY_PART(...)
#define SPILLWAY_RULE(...)
#include "allocator/base/settings.inc"
#undef SPILLWAY_SETTING
#undef SPILLWAY_PART
#undef SPILLWAY_RULE
};

constexpr Part kParts[] = {
#define SPILLWAY_SETTING(...)
#define SPILLWAY_PART(...) {__VA_ARGS__},
#define SPILLWAY_RULE(...)
#include "allocator/base/settings.inc"
#undef SPILLWAY_SETTING
#undef SPILLWAY_PART
#undef SPILLWAY_RULE
};

constexpr Rule kRules[] = {
#define SPILLWAY_SETTING(...)
#define SPILLWAY_PART(...)
#define SPILLWAY_RULE(...) {__VA_ARGS__},
#include "allocator/base/settings.inc"
#undef SPILLWAY_SETTING
#undef SPILLWAY_PART
#undef SPILLWAY_RULE
};

}  // namespace

std::span<const Setting> all() {
  return kSettings;
}

std::span<const Part> parts() {
  return kParts;
}

std::span<const Rule> rules() {
  return kRules;
}

const Setting* find(std::string_view name) {
  const auto* found =
      std::find_if(std::begin(kSettings), std::end(kSettings), [&](const auto& each) {
        return each.name == name || (each.flag == name && !name.empty());
      });
  return found == std::end(kSettings) ? nullptr : found;
}

namespace {

/// Number of characters to insert, remove or replace in `from` to get `to`.
std::size_t edit_distance(std::string_view from, std::string_view to) {
  std::vector<std::size_t> row(to.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 0; i < from.size(); ++i) {
    std::size_t diagonal = std::exchange(row[0], i + 1);
    for (std::size_t j = 0; j < to.size(); ++j) {
      const std::size_t replaced = diagonal + (from[i] == to[j] ? 0 : 1);
      diagonal = row[j + 1];
      row[j + 1] = std::min({replaced, diagonal + 1, row[j] + 1});
    }
  }
  return row.back();
}

std::string_view nearest_name(std::string_view name) {
  return std::min_element(std::begin(kSettings),
                          std::end(kSettings),
                          [&](const Setting& a, const Setting& b) {
                            return edit_distance(name, a.name) < edit_distance(name, b.name);
                          })
      ->name;
}

}  // namespace

Status check_name(std::string_view name) {
  if (!name.starts_with("SPILLWAY_") || find(name) != nullptr) return {};
  return SPILLWAY_ERROR(Code::kInvalidArgument,
                        std::string(name) + ": unknown setting. The nearest name is " +
                            std::string(nearest_name(name)) + ".");
}

Status check_names() {
  for (char** entry = environ; *entry != nullptr; ++entry)
    SPILLWAY_RETURN_IF_ERROR(check_name(name_and_value(*entry).first));
  return {};
}

Status check_environment(Section section) {
  SPILLWAY_RETURN_IF_ERROR(check_names());
  std::vector<std::string> given;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const auto [name, value] = name_and_value(*entry);
    const Setting* const setting = find(name);
    if (setting == nullptr || setting->section != section || value.empty()) continue;
    SPILLWAY_RETURN_IF_ERROR(check(*setting, name, value));
    given.emplace_back(*entry);
  }
  return check_rules(given);
}

}  // namespace spillway::settings
