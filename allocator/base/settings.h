// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "allocator/base/result.h"

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace spillway::settings {

enum class Section : std::uint8_t { kJob, kEmulated, kOther };

enum class Type : std::uint8_t {
  kFlag,      // 0 or 1
  kChoice,    // one of `choices`
  kInteger,   // digits only
  kNumber,    // as read_decimal()
  kSize,      // as read_size()
  kRate,      // as read_rate()
  kBudget,    // as read_amount()
  kDuration,  // as read_seconds()
  kNumbers,   // NAME=NUMBER,… of the setting's parts
  kShares,    // PATTERN=NUMBER,…
  kText,      // any text
};

/// A row of python/spillway/settings.toml, which describes the fields. `least` and `most` are texts
/// that the setting accepts, empty for no limit.
struct Setting {
  std::string_view name;  // SPILLWAY_…
  std::string_view flag;  // --…; empty without an option
  std::string_view metavar;
  std::string_view least;
  std::string_view most;
  std::string_view choices;  // separated by commas
  std::string_view initial;  // the value of an unset variable; may be empty
  std::string_view example;
  std::string_view advice;
  Section section;
  Type type;
  bool above;  // `least` itself is excluded
  bool starts_job;
};

/// Names with a common range, of a setting of type kNumbers.
struct Part {
  std::string_view setting;
  std::string_view names;  // separated by commas
  std::string_view least;
  std::string_view most;
  std::string_view description;
  bool is_flag;  // 0 or 1; the name alone is 1
  bool above;
};

/// Each of `settings` needs one of `needs`, and excludes all of `excludes`. Lists of terms,
/// separated by commas: NAME for a variable that is set and not 0, or NAME=VALUE.
struct Rule {
  std::string_view settings;
  std::string_view needs;
  std::string_view excludes;
  std::string_view because;
  std::string_view action;
};

// The whole table.
std::span<const Setting> all();
std::span<const Part> parts();
std::span<const Rule> rules();

/// By variable (SPILLWAY_BUDGET) or option (--budget); null for an unknown one.
const Setting* find(std::string_view name);

/// Checks one value. `shown` is what errors call the setting, such as "--budget".
/// Errors: kInvalidArgument, one line: shown=value, the allowed values, and what to do.
Status check(const Setting& setting, std::string_view shown, std::string_view value);

/// Checks the rules. `given` has each setting at most once, as "SPILLWAY_BUDGET=1GiB" or
/// "--budget=1GiB", with a value that check() accepts. Unknown names are ignored.
/// Errors: kInvalidArgument, one line that names both settings and what to do.
Status check_rules(std::span<const std::string> given);

/// Errors: kInvalidArgument for an unknown variable that begins with SPILLWAY_, because a
/// misspelled setting must not be silently ignored.
Status check_name(std::string_view name);

// The environment. Threads: safe unless another thread calls setenv at the same time.

/// Checks all names.
Status check_names();
/// Checks all names, and the values of the settings of `section` and the rules between them.
Status check_environment(Section section);

}  // namespace spillway::settings
