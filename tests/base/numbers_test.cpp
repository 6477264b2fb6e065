// SPDX-License-Identifier: Apache-2.0
#include "allocator/base/env.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

namespace spillway {
namespace {

constexpr const char* kVariable = "SPILLWAY_TEST_NUMBER";

bool accepts_size(const std::string& text) {
  return env::parse_size(text, kVariable).ok();
}

template <typename Read>
bool accepts(const std::string& text, Read read) {
  setenv(kVariable, text.c_str(), 1);
  const auto found = read();
  unsetenv(kVariable);
  return found.ok() && found.value().has_value();
}

TEST(NumbersTest, TextsAreReadAsTheLauncherReadsThem) {
#define SIZE(text, accepted) EXPECT_EQ(accepts_size(text), accepted != 0) << "size " << (text);
#define NUMBER(text, accepted)                                                   \
  EXPECT_EQ(accepts(text, [] { return env::number(kVariable); }), accepted != 0) \
      << "number " << (text);
#define INTEGER(text, accepted)                                                       \
  EXPECT_EQ(accepts(text, [] { return env::whole(kVariable, 1, 8); }), accepted != 0) \
      << "integer " << (text);
#include "tests/base/numbers.inc"
#undef SIZE
#undef NUMBER
#undef INTEGER
}

}  // namespace
}  // namespace spillway
