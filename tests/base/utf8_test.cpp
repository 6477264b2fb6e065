// SPDX-License-Identifier: Apache-2.0
#include "allocator/base/utf8.h"

#include "allocator/base/result.h"

#include <gtest/gtest.h>

#include <string>
#include <string_view>

namespace spillway {
namespace {

TEST(Utf8Test, ValidTextIsLeftAsItIs) {
  for (const std::string_view text : {"",
                                      "encoder/mlp",
                                      "caf\xC3\xA9",
                                      "\xE2\x82\xAC",         // U+20AC
                                      "\xED\x9F\xBF",         // U+D7FF, before the surrogates
                                      "\xF0\x9F\x98\x80",     // U+1F600
                                      "\xF4\x8F\xBF\xBF"}) {  // U+10FFFF, the last
    EXPECT_EQ(valid_utf8(text), text);
  }
}

TEST(Utf8Test, EachByteThatIsPartOfNoCharacterIsEscaped) {
  EXPECT_EQ(valid_utf8("caf\xE9/mlp"), R"(caf\xe9/mlp)");
  EXPECT_EQ(valid_utf8("\x80"), R"(\x80)");
  EXPECT_EQ(valid_utf8("\xC3"), R"(\xc3)");
  EXPECT_EQ(valid_utf8("\xE2\x82"), R"(\xe2\x82)");
  EXPECT_EQ(valid_utf8("\xE2\x82zz"), R"(\xe2\x82zz)");
  EXPECT_EQ(valid_utf8("\xC0\x80"), R"(\xc0\x80)");                  // too long
  EXPECT_EQ(valid_utf8("\xE0\x80\x80"), R"(\xe0\x80\x80)");          // too long
  EXPECT_EQ(valid_utf8("\xF0\x80\x80\x80"), R"(\xf0\x80\x80\x80)");  // too long
  EXPECT_EQ(valid_utf8("\xED\xA0\x80"), R"(\xed\xa0\x80)");          // a surrogate
  EXPECT_EQ(valid_utf8("\xF4\x90\x80\x80"), R"(\xf4\x90\x80\x80)");  // past U+10FFFF
  EXPECT_EQ(valid_utf8("\xFF"), R"(\xff)");
}

TEST(Utf8Test, AnyBytesBecomeValid) {
  for (unsigned first = 0; first < 256; ++first) {
    for (unsigned second = 0; second < 256; ++second) {
      const std::string text = {static_cast<char>(first), static_cast<char>(second), 'x'};
      const std::string valid = valid_utf8(text);
      EXPECT_EQ(valid_utf8(valid), valid);
      EXPECT_TRUE(valid.ends_with('x')) << first << ' ' << second;
    }
  }
}

TEST(Utf8Test, APrefixCutsNoCharacter) {
  constexpr std::string_view kText = "a\xE2\x82\xAC\xC3\xA9";
  EXPECT_EQ(utf8_prefix(kText, 99), kText);
  EXPECT_EQ(utf8_prefix(kText, 6), kText);
  EXPECT_EQ(utf8_prefix(kText, 5), kText.substr(0, 4));
  EXPECT_EQ(utf8_prefix(kText, 4), kText.substr(0, 4));
  EXPECT_EQ(utf8_prefix(kText, 3), kText.substr(0, 1));
  EXPECT_EQ(utf8_prefix(kText, 0), "");
}

TEST(StatusTest, ErrorsAreValidUtf8) {
  const Status status = SPILLWAY_ERROR(Code::kInvalidArgument, "SPILLWAY_REPORT=\xFF: not a path");
  EXPECT_EQ(status.detail(), R"(SPILLWAY_REPORT=\xff: not a path)");
}

}  // namespace
}  // namespace spillway
