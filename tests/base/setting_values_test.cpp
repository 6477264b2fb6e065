// SPDX-License-Identifier: Apache-2.0
#include "allocator/base/setting_values.h"

#include <gtest/gtest.h>

#include <string>

namespace spillway::settings {
namespace {

using namespace literals;

/// Read as numbers by some other parser, and here by none.
constexpr const char* kNumbersOfNone[] = {
    "",  "0x1", "0X1p4", "1.", "1,5", "1.5.5", "+1",  "-1",       "-0",  " 1", "1 ",   "1_0",
    ".", "nan", "inf",   "e1", "1e",  "--1",   "0b1", "infinity", "1GB", "١",  "1'000"};

TEST(SettingValuesTest, OnlyPlainNumbersAreRead) {
  for (const std::string value : kNumbersOfNone) {
    std::string_view rest = value;
    EXPECT_FALSE(read_decimal(rest) && rest.empty()) << value;
    EXPECT_FALSE(read_integer(value)) << value;
    EXPECT_FALSE(read_size(value)) << value;
    EXPECT_FALSE(read_rate(value + "GB/s")) << value;
    EXPECT_FALSE(read_seconds(value + "us")) << value;
    EXPECT_FALSE(read_amount(value)) << value;
    if (value != "-1" && value != "-0") {
      EXPECT_FALSE(read_number(value)) << value;
    }
  }
}

TEST(SettingValuesTest, ADecimalIsTakenFromTheBeginning) {
  std::string_view text = ".5GiB";
  EXPECT_EQ(read_decimal(text), 0.5);
  EXPECT_EQ(text, "GiB");
}

TEST(SettingValuesTest, NumbersMayHaveASignAndAnExponent) {
  EXPECT_EQ(read_number("-1.5e3"), -1500);
  EXPECT_EQ(read_number("1e+18"), 1e18);
  EXPECT_FALSE(read_number(".5"));
  EXPECT_FALSE(read_number("1e999"));
}

TEST(SettingValuesTest, IntegersHaveDigitsOnly) {
  EXPECT_EQ(read_integer("007"), 7);
  for (const char* value : {"1.0", "1e0", "99999999999999999999"})
    EXPECT_FALSE(read_integer(value)) << value;
}

TEST(SettingValuesTest, SizesHaveBinaryUnitsAndAreBelowTwoToThe63) {
  EXPECT_EQ(read_size("512"), 512_B);
  EXPECT_EQ(read_size("512B"), 512_B);
  EXPECT_EQ(read_size("1.5GiB"), 1536_MiB);
  EXPECT_EQ(read_size("0.25TiB"), 256_GiB);
  EXPECT_EQ(read_size("007MiB"), 7_MiB);
  for (const char* value : {"8GB",
                            "8gib",
                            ".5GiB",
                            "1 GiB",
                            "GiB",
                            "1e3KiB",
                            "1e30",
                            "9223372036854775808",
                            "8388608TiB"})
    EXPECT_FALSE(read_size(value)) << value;
}

TEST(SettingValuesTest, RatesHaveDecimalUnitsOrAreSizes) {
  EXPECT_DOUBLE_EQ(read_rate("55.4GB/s").value(), 55.4e9);
  EXPECT_EQ(read_rate("1KB/s"), 1000);
  EXPECT_EQ(read_rate("50GiB"), 50.0 * (1ULL << 30U));
  for (const char* value : {"0GB/s", "0", "5parsec", "GB/s", "50GiB/s", "5GB"})
    EXPECT_FALSE(read_rate(value)) << value;
}

TEST(SettingValuesTest, TimesHaveAUnit) {
  EXPECT_DOUBLE_EQ(read_seconds("0.5ms").value(), 5e-4);
  EXPECT_DOUBLE_EQ(read_seconds("3us").value(), 3e-6);
  for (const char* value : {"3", "us", "3 us", "3h", "1e3us", ".5s"})
    EXPECT_FALSE(read_seconds(value)) << value;
}

TEST(SettingValuesTest, AmountsAreSizesSharesOrAutomatic) {
  EXPECT_EQ(read_amount("2GiB").value().bytes, 2_GiB);
  EXPECT_EQ(read_amount("12.5%").value().share, 0.125);
  EXPECT_TRUE(read_amount("auto").value().automatic);
  for (const char* value : {"0%", "101%", "-5%", "%", "5%%", ".5%", "5 %", "auto ", "Auto"})
    EXPECT_FALSE(read_amount(value)) << value;
}

}  // namespace
}  // namespace spillway::settings
