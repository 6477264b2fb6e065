// SPDX-License-Identifier: Apache-2.0
#include "allocator/base/setting_values.h"
#include "allocator/base/settings.h"

#include <algorithm>
#include <vector>

namespace spillway::settings {
namespace {

using Text = std::string_view;

Status bad(Text shown, Text value, const std::string& reason) {
  return SPILLWAY_ERROR(Code::kInvalidArgument,
                        std::string(shown) + "=" + std::string(value) + ": " + reason);
}

/// "a, b, c", without empty items.
std::string listed(Text names) {
  std::string list;
  for (const Text each : items(names))
    list += (list.empty() ? "" : ", ") + std::string(each);
  return list;
}

bool is_one_of(Text list, Text value) {
  const auto choices = items(list);
  return std::any_of(choices.begin(), choices.end(), [&](Text each) {
    constexpr Text kSeed = "SEED";
    if (!each.ends_with(kSeed)) return value == each;
    const Text prefix = each.substr(0, each.size() - kSeed.size());
    return value.starts_with(prefix) && read_integer(value.substr(prefix.size())).has_value();
  });
}

template <typename Row>
bool in_range(const Row& row, std::optional<double> value) {
  const auto least = read_number(row.least);
  const auto most = read_number(row.most);
  if (!value || (most && *value > *most)) return false;
  return !least || (row.above ? *value > *least : *value >= *least);
}

std::string range_of(const Setting& setting) {
  return " from " + std::string(setting.least) + " to " + std::string(setting.most);
}

/// The end of an error: an example, and what to do.
std::string such_as(const Setting& setting) {
  std::string text;
  if (!setting.example.empty()) text += ", such as " + std::string(setting.example);
  if (!setting.advice.empty()) text += ". " + std::string(setting.advice);
  return text;
}

std::optional<double> read_whole(Text value) {
  const auto number = read_decimal(value);
  return value.empty() ? number : std::nullopt;
}

/// Of a setting with sizes.
Status check_size_range(const Setting& setting, Text shown, Text value, Bytes size) {
  const Bytes least = read_size(setting.least).value_or(Bytes{});
  if (setting.above ? size > least : size >= least) return {};
  const std::string limit = setting.above ? "a size above " : "at least ";
  return bad(shown, value, "expected " + limit + std::string(setting.least) + such_as(setting));
}

Status check_budget(const Setting& setting, Text shown, Text value) {
  const auto amount = read_amount(value);
  if (value.ends_with('%') && !amount) {
    return bad(shown, value, "expected a share above 0% and at most 100%, such as 80%");
  }
  if (!amount) {
    return bad(shown, value, "expected a size such as 20GiB, a share such as 80%, or auto");
  }
  if (amount->automatic || amount->share > 0) return {};
  return check_size_range(setting, shown, value, amount->bytes);
}

bool fits(const Part& part, Text value, bool is_alone) {
  if (part.is_flag) return is_alone || value == "0" || value == "1";
  return in_range(part, read_number(value));
}

Status check_numbers(const Setting& setting, Text shown, Text value) {
  for (const Text item : items(value)) {
    const auto [name, number] = name_and_value(item);
    bool found = false;
    std::string known;
    for (const Part& part : parts()) {
      if (part.setting != setting.name) continue;
      known += (known.empty() ? "" : "; ") + listed(part.names) + " (" +
               std::string(part.description) + ")";
      const auto names = items(part.names);
      const bool is_named = std::find(names.begin(), names.end(), name) != names.end();
      found = found || (is_named && fits(part, number, item == name));
    }
    if (!found) return bad(shown, item, "expected NAME=NUMBER, where NAME is one of " + known);
  }
  return {};
}

/// Names of modules and ranges, in patterns.
bool is_pattern(Text pattern) {
  constexpr Text kAllowed = "_.*?/ -";
  return !pattern.empty() && std::all_of(pattern.begin(), pattern.end(), [&](char each) {
    const auto byte = static_cast<unsigned char>(each);
    const bool is_letter = (byte | 0x20U) >= 'a' && (byte | 0x20U) <= 'z';
    return is_letter || (byte >= '0' && byte <= '9') || byte >= 0x80 ||
           kAllowed.find(each) != Text::npos;
  });
}

Status check_shares(const Setting& setting, Text shown, Text value) {
  std::vector<Text> patterns;
  for (const Text item : items(value)) {
    const auto [pattern, share] = name_and_value(item);
    if (!is_pattern(pattern) || pattern.size() == item.size()) {
      return bad(shown,
                 value,
                 "expected PATTERN=SHARE, such as mlp=0.8, where PATTERN fits names of modules");
    }
    if (!in_range(setting, read_whole(share))) {
      return bad(shown, item, "expected a share" + range_of(setting) + ", such as 0.5");
    }
    if (std::find(patterns.begin(), patterns.end(), pattern) != patterns.end()) {
      return bad(shown, value, "gives " + std::string(pattern) + " two ratios. Remove one.");
    }
    patterns.push_back(pattern);
  }
  return {};
}

// Rules

struct Given {
  const Setting* setting;
  Text name;
  Text value;

  [[nodiscard]] bool is_option() const { return name.starts_with("--"); }

  [[nodiscard]] std::string shown() const {
    std::string text(name);
    if (!is_option() || setting->type != Type::kFlag) text.append("=").append(value);
    return text;
  }
};

/// The setting for which the term holds; null if it does not.
const Given* holding(const std::vector<Given>& given, Text term) {
  const auto [name, value] = name_and_value(term);
  for (const Given& each : given) {
    if (each.setting->name != name) continue;
    const bool is_off =
        each.value.empty() || (each.setting->type == Type::kFlag && each.value == "0");
    if (value.empty() ? !is_off : each.value == value) return &each;
  }
  return nullptr;
}

/// The first one of a list; null if none holds.
const Given* any_of(const std::vector<Given>& given, Text terms) {
  for (const Text term : items(terms)) {
    if (const Given* const found = holding(given, term)) return found;
  }
  return nullptr;
}

/// "Add --report DIR", or "Set SPILLWAY_REPORT=DIR".
std::string how_to_meet(Text needs, bool as_option) {
  std::string text;
  for (const Text term : items(needs)) {
    const auto [name, value] = name_and_value(term);
    const Setting& setting = *find(name);
    if (setting.flag.empty()) continue;  // the launcher sets it
    const Text shown = value.empty() ? setting.metavar : value;
    text += text.empty() ? (as_option ? "Add " : "Set ") : " or ";
    text += std::string(as_option ? setting.flag : setting.name) + (as_option ? " " : "=") +
            std::string(shown);
  }
  return text + ".";
}

Status excluded(const Rule& rule, const Given& one, const Given& other) {
  const bool is_one_inherited = one.is_option() != other.is_option();
  if (!rule.because.empty()) {
    return SPILLWAY_ERROR(Code::kInvalidArgument,
                          one.shown() + ": " + std::string(rule.because) +
                              (one.is_option() ? ". Leave it out." : ". Unset it."));
  }
  if (is_one_inherited) {
    const Given& option = one.is_option() ? one : other;
    const Given& variable = one.is_option() ? other : one;
    return SPILLWAY_ERROR(Code::kInvalidArgument,
                          option.shown() + ": cannot be combined with " + variable.shown() +
                              " of the environment. Unset that variable.");
  }
  return SPILLWAY_ERROR(
      Code::kInvalidArgument,
      one.shown() + ": cannot be combined with " + other.shown() + ". " + std::string(rule.action));
}

Status check_rule(const Rule& rule, const Given& one, const std::vector<Given>& given) {
  if (!rule.needs.empty() && any_of(given, rule.needs) == nullptr) {
    const std::string action =
        rule.action.empty() ? how_to_meet(rule.needs, one.is_option()) : std::string(rule.action);
    return SPILLWAY_ERROR(Code::kInvalidArgument,
                          one.shown() + ": " + std::string(rule.because) + ". " + action);
  }
  if (rule.excludes.empty()) return {};
  const Given* const other = any_of(given, rule.excludes);
  return other == nullptr ? Status() : excluded(rule, one, *other);
}

}  // namespace

Status check(const Setting& setting, Text shown, Text value) {
  switch (setting.type) {
    case Type::kFlag:
      if (value == "0" || value == "1") return {};
      return bad(shown, value, "expected 0 or 1");
    case Type::kChoice: {
      if (is_one_of(setting.choices, value)) return {};
      const Text seed = setting.example;
      return bad(
          shown,
          value,
          "expected one of " + listed(setting.choices) +
              (seed.empty() ? "" : ", with an integer for SEED, such as " + std::string(seed)));
    }
    case Type::kInteger: {
      const auto number = read_integer(value);
      if (number && in_range(setting, static_cast<double>(*number))) return {};
      return bad(shown, value, "expected an integer" + range_of(setting) + such_as(setting));
    }
    case Type::kNumber:
      if (in_range(setting, read_whole(value))) return {};
      return bad(shown, value, "expected a number" + range_of(setting) + such_as(setting));
    case Type::kSize: {
      const auto size = read_size(value);
      if (size) return check_size_range(setting, shown, value, *size);
      return bad(shown,
                 value,
                 "expected a size such as " + std::string(setting.example) + ", below 2^63 bytes");
    }
    case Type::kRate:
      if (read_rate(value)) return {};
      return bad(shown, value, "expected a rate" + such_as(setting));
    case Type::kBudget:
      return check_budget(setting, shown, value);
    case Type::kDuration:
      if (in_range(setting, read_seconds(value))) return {};
      return bad(shown,
                 value,
                 "expected a time up to " + std::string(setting.most) + "s with its unit" +
                     such_as(setting));
    case Type::kNumbers:
      return check_numbers(setting, shown, value);
    case Type::kShares:
      return check_shares(setting, shown, value);
    case Type::kText:
      return {};
  }
  return {};
}

Status check_rules(std::span<const std::string> texts) {
  std::vector<Given> given;
  for (const std::string& text : texts) {
    const auto [name, value] = name_and_value(text);
    if (const Setting* const setting = find(name)) given.push_back({setting, name, value});
  }
  for (const Rule& rule : rules()) {
    for (const Text term : items(rule.settings)) {
      const Given* const one = holding(given, term);
      if (one != nullptr) SPILLWAY_RETURN_IF_ERROR(check_rule(rule, *one, given));
    }
  }
  return {};
}

}  // namespace spillway::settings
