// SPDX-License-Identifier: Apache-2.0
#include "allocator/base/env.h"

#include "allocator/base/check.h"
#include "allocator/base/setting_values.h"
#include "allocator/base/settings.h"

#include <cstdlib>

namespace spillway::env {
namespace {

using settings::Type;

const settings::Setting& row(const char* name) {
  const settings::Setting* const found = settings::find(name);
  SPILLWAY_CHECK(found != nullptr);
  return *found;
}

}  // namespace

std::optional<std::string> foreign(const char* name) {
  const char* value = std::getenv(name);  // NOLINT(concurrency-mt-unsafe): see the header
  return value == nullptr ? std::nullopt : std::optional<std::string>(value);
}

Result<std::optional<std::string>> text(const char* name) {
  const settings::Setting& setting = row(name);
  const std::string value = foreign(name).value_or("");
  if (!value.empty()) {
    SPILLWAY_RETURN_IF_ERROR(settings::check(setting, name, value));
    return std::optional(value);
  }
  return setting.initial.empty() ? std::optional<std::string>()
                                 : std::optional(std::string(setting.initial));
}

Result<bool> flag(const char* name) {
  SPILLWAY_ASSIGN_OR_RETURN(const auto value, text(name));
  return value == "1";
}

Result<long> integer(const char* name) {
  SPILLWAY_ASSIGN_OR_RETURN(const auto value, text(name));
  return settings::read_integer(value.value_or("0")).value_or(0);
}

Result<std::optional<Bytes>> size(const char* name) {
  SPILLWAY_ASSIGN_OR_RETURN(const auto value, text(name));
  return value ? settings::read_size(*value) : std::nullopt;
}

Result<std::optional<double>> number(const char* name) {
  SPILLWAY_ASSIGN_OR_RETURN(const auto value, text(name));
  if (!value) return std::optional<double>();
  const Type type = row(name).type;
  if (type == Type::kRate) return settings::read_rate(*value);
  if (type == Type::kDuration) return settings::read_seconds(*value);
  std::string_view rest = *value;
  return settings::read_decimal(rest);
}

}  // namespace spillway::env
