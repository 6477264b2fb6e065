// SPDX-License-Identifier: Apache-2.0
#include "allocator/base/settings.h"

#include "allocator/base/setting_values.h"

#include <unistd.h>

#include <algorithm>
#include <iterator>
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

Status check_name(std::string_view name) {
  if (!name.starts_with("SPILLWAY_") || find(name) != nullptr) return {};
  std::string list;
  for (const Setting& known : kSettings)
    list += (list.empty() ? "" : ", ") + std::string(known.name);
  return SPILLWAY_ERROR(Code::kInvalidArgument,
                        std::string(name) + ": unknown setting. Use one of " + list + ".");
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
