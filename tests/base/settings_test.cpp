// SPDX-License-Identifier: Apache-2.0
// Properties of every setting in the table, and the forms of values.
#include "allocator/base/settings.h"

#include "allocator/base/env.h"
#include "allocator/base/setting_values.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <string>
#include <vector>

namespace spillway::settings {
namespace {

std::string error_of(const Setting& setting, std::string_view value) {
  const Status status = check(setting, setting.name, value);
  EXPECT_TRUE(status.ok() || status.code() == Code::kInvalidArgument);
  return status.detail();
}

std::string text(std::string_view view) {
  return std::string(view);
}

std::string a_valid_value(const Setting& setting) {
  if (setting.type == Type::kFlag) return "1";
  if (!setting.example.empty()) return text(setting.example);
  if (setting.type == Type::kInteger) return text(setting.least);
  return setting.choices.empty() ? "any text" : text(items(setting.choices).front());
}

/// Texts outside the type, and values outside the range.
std::vector<std::string> invalid_values(const Setting& setting) {
  if (setting.type == Type::kText) return {};
  std::vector<std::string> found = {
      "", "much", "-1", " 1", "1 ", "0x1", "1,5", "nan", "inf", "1e99"};
  const bool is_size = setting.type == Type::kSize || setting.type == Type::kBudget;
  if (is_size) found.insert(found.end(), {"8GB", "8gib", "1.GiB", ".5GiB", "8388608TiB"});
  if (!setting.least.empty() && setting.above) found.push_back(text(setting.least));
  if (is_size && setting.least.ends_with("MiB")) found.emplace_back("1048575");
  if (setting.type == Type::kInteger || setting.type == Type::kNumber) {
    found.push_back(std::to_string(std::stoi(text(setting.most)) + 1));
    if (setting.least != "0") found.push_back(std::to_string(std::stoi(text(setting.least)) - 1));
  }
  if (setting.type == Type::kDuration) found.push_back(text(setting.most) + ".1s");
  if (setting.type == Type::kShares)
    found.insert(found.end(), {"mlp", "mlp=2", "mlp=", "=1", "a=1,", "a=1,a=0", "a(b)=1"});
  return found;
}

TEST(SettingsTableTest, EverySettingAcceptsItsExampleItsDefaultAndItsChoices) {
  for (const Setting& setting : all()) {
    EXPECT_EQ(error_of(setting, a_valid_value(setting)), "");
    if (!setting.initial.empty()) {
      EXPECT_EQ(error_of(setting, setting.initial), "");
    }
    if (!setting.least.empty() && !setting.above && setting.type != Type::kShares) {
      EXPECT_EQ(error_of(setting, setting.least), "");
    }
    for (const std::string_view each : items(setting.choices))
      if (!each.empty() && !each.ends_with(":SEED")) {
        EXPECT_EQ(error_of(setting, each), "");
      }
  }
}

TEST(SettingsTableTest, AnInvalidValueOfAnySettingIsNamedWithWhatIsExpected) {
  for (const Setting& setting : all()) {
    for (const std::string& value : invalid_values(setting)) {
      const std::string error = error_of(setting, value);
      const bool is_list = setting.type == Type::kNumbers || setting.type == Type::kShares;
      EXPECT_TRUE(error.starts_with(text(setting.name) + "="))
          << setting.name << "=" << value << error;
      if (!is_list) {
        EXPECT_NE(error.find("=" + value + ": expected "), std::string::npos) << error;
      }
      if (!setting.example.empty() && !is_list && !value.ends_with('%')) {
        EXPECT_NE(error.find("such as "), std::string::npos) << error;
      }
    }
  }
}

TEST(SettingsTableTest, EveryPartOfANumberListHasItsRange) {
  for (const Part& part : parts()) {
    const Setting& setting = *find(part.setting);
    for (const std::string_view name : items(part.names)) {
      const std::string given = text(name) + "=";
      EXPECT_EQ(error_of(setting, given + text(part.most)), "");
      EXPECT_EQ(error_of(setting, given + text(part.least)).empty(), !part.above) << given;
      EXPECT_EQ(error_of(setting, name).empty(), part.is_flag) << name;
      const double more = read_number(part.most).value() * 2;
      for (const std::string& bad :
           {std::to_string(more), std::string("-1e301"), std::string("x"), std::string()}) {
        const std::string error = error_of(setting, given + bad);
        EXPECT_TRUE(
            error.starts_with(text(part.setting) + "=" + given + bad + ": expected NAME=NUMBER"))
            << given << bad << ": " << error;
      }
      if (part.is_flag) {
        EXPECT_NE(error_of(setting, given + "0.5"), "");
      }
    }
    EXPECT_NE(error_of(setting, "speed=1"), "");
  }
}

/// "SPILLWAY_X=VALUE" or "--x=VALUE", for which the term holds.
std::string meeting(std::string_view term, bool as_option) {
  const auto [name, value] = name_and_value(term);
  const Setting& setting = *find(name);
  const std::string_view shown = as_option && !setting.flag.empty() ? setting.flag : setting.name;
  return text(shown) + "=" + (value.empty() ? a_valid_value(setting) : text(value));
}

std::string broken(const std::vector<std::string>& given) {
  return check_rules(given).detail();
}

void expect_named(const std::string& error, const std::string& one) {
  EXPECT_TRUE(error.starts_with(one.substr(0, one.find('=')))) << one << ": " << error;
  EXPECT_TRUE(error.ends_with('.')) << error;
}

TEST(SettingsTableTest, EveryRuleIsKeptAndItsErrorNamesTheSettingAndWhatToDo) {
  for (const Rule& rule : rules()) {
    for (const std::string_view term : items(rule.settings)) {
      for (const bool as_option : {false, true}) {
        const std::string one = meeting(term, as_option);
        for (const std::string_view need : items(rule.needs)) {
          if (need.empty()) continue;
          expect_named(broken({one}), one);
          EXPECT_EQ(broken({one, meeting(need, as_option)}), "");
        }
        for (const std::string_view exclusion : items(rule.excludes)) {
          if (exclusion.empty()) continue;
          expect_named(broken({meeting(exclusion, as_option), one}), one);
          EXPECT_NE(broken({meeting(exclusion, !as_option), one}), "");
          const std::string unset = meeting(exclusion, false);
          EXPECT_EQ(broken({unset.substr(0, unset.find('=') + 1), one}), broken({one}));
        }
      }
    }
  }
}

TEST(SettingsTableTest, AnErrorNamesTheOptionAndAsksToUnsetTheInheritedVariable) {
  EXPECT_EQ(broken({"SPILLWAY_OFFLOAD_RATIO=0.5", "--budget=1GiB"}),
            "--budget=1GiB: cannot be combined with SPILLWAY_OFFLOAD_RATIO=0.5 of the environment. "
            "Unset that variable.");
  EXPECT_EQ(
      broken({"SPILLWAY_BUDGET=1GiB", "--ratio=0.5"}),
      "--ratio=0.5: cannot be combined with SPILLWAY_BUDGET=1GiB of the environment. Unset that "
      "variable.");
  EXPECT_EQ(broken({"--operators=1"}),
            "--operators: needs a report to write to. Add --report DIR.");
  EXPECT_EQ(
      broken({"SPILLWAY_EMULATE_LATENCY=3us"}),
      "SPILLWAY_EMULATE_LATENCY=3us: needs the virtual clock. Set SPILLWAY_EMULATE_CLOCK=virtual.");
}

TEST(SettingsTableTest, ASwitchThatIsOffBreaksNoRule) {
  EXPECT_EQ(broken({"SPILLWAY_REPORT_OPERATORS=0"}), "");
  EXPECT_EQ(broken({"SPILLWAY_EMULATE_SHAPE_ONLY=0", "SPILLWAY_EMULATE_CHECK=1"}), "");
  EXPECT_NE(broken({"SPILLWAY_EMULATE_SHAPE_ONLY=0", "SPILLWAY_EMULATE_ASSUME=finite"}), "");
}

TEST(SettingsTableTest, ATermWithAValueHoldsForThatValueAlone) {
  EXPECT_NE(broken({"--clock=real", "--latency=3us"}), "");
  EXPECT_EQ(broken({"--clock=virtual", "SPILLWAY_EMULATE_SHAPE_ONLY=1"}), "");
}

/// A variable that is set for a scope.
class Variable {
 public:
  Variable(const char* name, const char* value) : name_(name) { setenv(name, value, 1); }

  ~Variable() { unsetenv(name_); }

  Variable(const Variable&) = delete;
  Variable& operator=(const Variable&) = delete;

 private:
  const char* name_;
};

TEST(EnvironmentSettingsTest, AnUnknownNameIsAnErrorWithTheNearestName) {
  for (const auto& [name, nearest] :
       {std::pair{"SPILLWAY_EMULATE_SHEDULE", "SPILLWAY_EMULATE_SCHEDULE"},
        std::pair{"SPILLWAY_BUDGETS", "SPILLWAY_BUDGET"},
        std::pair{"SPILLWAY_BUGDET", "SPILLWAY_BUDGET"},
        std::pair{"SPILLWAY_LOGG", "SPILLWAY_LOG"}}) {
    const Variable variable(name, "1");
    EXPECT_EQ(check_names().detail(),
              std::string(name) + ": unknown setting. The nearest name is " + nearest + ".");
  }
}

TEST(EnvironmentSettingsTest, ASectionIsCheckedAlone) {
  const Variable v2("SPILLWAY_BUDGET", "1GiB");
  const Variable v3("SPILLWAY_OFFLOAD_RATIO", "0.5");
  EXPECT_NE(check_environment(Section::kJob).detail().find("cannot be combined"),
            std::string::npos);
  EXPECT_TRUE(check_environment(Section::kEmulated).ok());
  const Variable v4("SPILLWAY_EMULATE_DEVICES", "9");
  EXPECT_NE(check_environment(Section::kEmulated).detail().find("_DEVICES=9: "), std::string::npos);
}

TEST(EnvironmentSettingsTest, AnUnsetOrEmptyVariableHasTheDefault) {
  const Variable empty("SPILLWAY_EMULATE_MEMORY", "");
  EXPECT_EQ(env::size("SPILLWAY_EMULATE_MEMORY").value(), Bytes{8ULL << 30U});
  EXPECT_EQ(env::number("SPILLWAY_EMULATE_LINK_H2D").value(), 50.0 * (1ULL << 30U));
  EXPECT_EQ(env::integer("SPILLWAY_EMULATE_DEVICES").value(), 1);
  EXPECT_EQ(env::size("SPILLWAY_PINNED_LIMIT").value(), std::nullopt);
  EXPECT_EQ(env::number("SPILLWAY_OFFLOAD_RATIO").value(), std::nullopt);
  EXPECT_FALSE(env::flag("SPILLWAY_RECOMPUTE").value());
}

TEST(EnvironmentSettingsTest, ValuesAreReadByTheirType) {
  const Variable rate("SPILLWAY_EMULATE_LINK_H2D", "55.4GB/s");
  const Variable duration("SPILLWAY_EMULATE_LATENCY", "0.5ms");
  const Variable ratio("SPILLWAY_OFFLOAD_RATIO", ".5");
  EXPECT_DOUBLE_EQ(env::number("SPILLWAY_EMULATE_LINK_H2D").value().value(), 55.4e9);
  EXPECT_DOUBLE_EQ(env::number("SPILLWAY_EMULATE_LATENCY").value().value(), 5e-4);
  EXPECT_EQ(env::number("SPILLWAY_OFFLOAD_RATIO").value(), 0.5);
  const Variable invalid("SPILLWAY_EMULATE_LATENCY", "3");
  EXPECT_EQ(env::number("SPILLWAY_EMULATE_LATENCY").status().code(), Code::kInvalidArgument);
}

}  // namespace
}  // namespace spillway::settings
