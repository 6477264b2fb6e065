// SPDX-License-Identifier: Apache-2.0
// Settings and messages are the same in a locale whose decimal separator is a comma.
#include "allocator/base/bytes.h"
#include "allocator/base/env.h"
#include "allocator/base/number.h"
#include "allocator/base/setting_values.h"
#include "allocator/base/settings.h"

#include <gtest/gtest.h>

#include <charconv>
#include <clocale>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <limits>
#include <locale>
#include <string>

namespace spillway {
namespace {

using namespace literals;

/// For C++ streams, which have a locale of their own.
class Comma : public std::numpunct<char> {
  char do_decimal_point() const override { return ','; }

  char do_thousands_sep() const override { return '.'; }

  std::string do_grouping() const override { return "\3"; }
};

/// Sets a locale with a decimal comma, which localedef compiles from one category.
class LocaleTest : public testing::Test {
 protected:
  void SetUp() override {
    std::ofstream(folder_ / "comma.src") << "LC_NUMERIC\ndecimal_point \",\"\nthousands_sep \".\"\n"
                                            "grouping 3;3\nEND LC_NUMERIC\n";
    const std::string compile = "cd '" + folder_.string() +
                                "' && localedef --quiet --force -i comma.src ./comma 2>/dev/null";
    // localedef ends with 1 for the categories that are not defined.
    static_cast<void>(std::system(compile.c_str()));
    setenv("LOCPATH", folder_.c_str(), 1);
    if (std::setlocale(LC_NUMERIC, "comma") == nullptr) {
      GTEST_SKIP() << "localedef has made no locale with a decimal comma";
    }
    before_ = std::locale::global(std::locale(std::locale::classic(), new Comma));
    ASSERT_NE(std::strtod("0.5", nullptr), 0.5);
  }

  void TearDown() override {
    std::setlocale(LC_NUMERIC, "C");
    std::locale::global(before_);
    unsetenv("LOCPATH");
    unsetenv("SPILLWAY_OFFLOAD_RATIO");
    std::filesystem::remove_all(folder_);
  }

 private:
  static std::filesystem::path make_folder() {
    std::string name = (std::filesystem::temp_directory_path() / "locale-XXXXXX").string();
    return mkdtemp(name.data());
  }

  std::filesystem::path folder_ = make_folder();
  std::locale before_;
};

TEST_F(LocaleTest, SettingsHaveADecimalPoint) {
  setenv("SPILLWAY_OFFLOAD_RATIO", "0.5", 1);
  const auto ratio = env::number("SPILLWAY_OFFLOAD_RATIO");
  ASSERT_TRUE(ratio.ok()) << ratio.status().detail();
  EXPECT_EQ(ratio.value(), 0.5);
  setenv("SPILLWAY_OFFLOAD_RATIO", "0,5", 1);
  EXPECT_FALSE(env::number("SPILLWAY_OFFLOAD_RATIO").ok());
  EXPECT_EQ(settings::read_size("1.5GiB"), 1536_MiB);
  EXPECT_EQ(settings::read_size("1,5GiB"), std::nullopt);
  EXPECT_EQ(settings::read_seconds("0.5s"), 0.5);
  EXPECT_EQ(settings::read_number("1.5e3"), 1500);
  for (const settings::Setting& setting : settings::all()) {
    if (!setting.example.empty()) {
      EXPECT_TRUE(settings::check(setting, setting.name, setting.example).ok()) << setting.name;
    }
  }
}

TEST_F(LocaleTest, MessagesHaveADecimalPoint) {
  EXPECT_EQ(readable(1536_MiB), "1.50 GiB");
  EXPECT_EQ(readable(5_GiB), "5.00 GiB");
  EXPECT_EQ(to_text(0.5), "0.5");
  EXPECT_EQ(to_text(1234567.25, 1), "1234567.2");
}

TEST_F(LocaleTest, NumbersSurviveBeingWrittenAndRead) {
  for (const double value : {0.0, 0.1, 1.0 / 3, -2.5e-300, 1e300, 12345678.9}) {
    const std::string text = to_text(value);
    double read = -1;
    std::from_chars(text.data(), text.data() + text.size(), read);
    EXPECT_EQ(read, value);
  }
  EXPECT_EQ(to_text(std::numeric_limits<double>::max(), 16).size(), 309U + 1 + 16);
}

}  // namespace
}  // namespace spillway
