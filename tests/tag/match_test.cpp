// SPDX-License-Identifier: Apache-2.0
#include "allocator/tag/tag.h"

#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

namespace spillway {
namespace {

TEST(TagMatchTest, APathFitsItself) {
  EXPECT_TRUE(tag_matches("activation/layers.0", "activation/layers.0"));
}

TEST(TagMatchTest, APrefixFitsWhatLiesInIt) {
  EXPECT_TRUE(tag_matches("activation", "activation/layers.0"));
  EXPECT_TRUE(tag_matches("a/b", "a/b/c/d"));
}

TEST(TagMatchTest, APrefixEndsWithAComponent) {
  EXPECT_FALSE(tag_matches("activation", "activations"));
  EXPECT_FALSE(tag_matches("activation/layers.1", "activation/layers.10"));
}

TEST(TagMatchTest, ALongerPatternFitsNoShorterPath) {
  EXPECT_FALSE(tag_matches("activation/*", "activation"));
  EXPECT_FALSE(tag_matches("a/b", "a"));
}

TEST(TagMatchTest, AStarStandsForAnyRunInOneComponent) {
  EXPECT_TRUE(tag_matches("activation/*", "activation/layers.0"));
  EXPECT_TRUE(tag_matches("activation/layers.*.mlp", "activation/layers.12.mlp"));
  EXPECT_TRUE(tag_matches("a*b*c", "abbbc"));
  EXPECT_FALSE(tag_matches("a*b*c", "abbbd"));
  EXPECT_FALSE(tag_matches("*/mlp", "encoder/1/mlp"));
}

TEST(TagMatchTest, TwoStarsStandForAnyNumberOfComponents) {
  EXPECT_TRUE(tag_matches("**/mlp", "mlp"));
  EXPECT_TRUE(tag_matches("**/mlp", "encoder/1/mlp"));
  EXPECT_TRUE(tag_matches("encoder/**/mlp", "encoder/mlp/inner"));
  EXPECT_FALSE(tag_matches("encoder/**/mlp", "decoder/1/mlp"));
}

TEST(TagMatchTest, TheEmptyPatternFitsUntaggedOnly) {
  EXPECT_TRUE(tag_matches("", ""));
  EXPECT_FALSE(tag_matches("", "a"));
  EXPECT_FALSE(tag_matches("**", ""));
}

/// The result of tag_matches, by trying everything: slow and plainly right.
bool fits(const std::vector<std::string>& pattern,
          const std::vector<std::string>& path,
          std::size_t p,
          std::size_t t) {
  if (p == pattern.size()) return true;  // what is left of the path lies in it
  if (pattern[p] == "**") {
    for (std::size_t skip = t; skip <= path.size(); ++skip) {
      if (fits(pattern, path, p + 1, skip)) return true;
    }
    return false;
  }
  if (t == path.size()) return false;
  return (pattern[p] == "*" || pattern[p] == path[t]) && fits(pattern, path, p + 1, t + 1);
}

std::string joined(const std::vector<std::string>& parts) {
  std::string all;
  for (const std::string& part : parts)
    all += (all.empty() ? "" : "/") + part;
  return all;
}

TEST(TagMatchTest, AnyPatternFitsWhatTryingEverythingFits) {
  const unsigned seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  const std::vector<std::string> names = {"a", "b", "*", "**"};
  int fitting = 0;
  for (int round = 0; round < 5000; ++round) {
    std::vector<std::string> pattern(1 + random() % 4);
    std::vector<std::string> path(1 + random() % 5);
    for (auto& part : pattern)
      part = names[random() % 4];
    for (auto& part : path)
      part = names[random() % 2];
    const bool expected = fits(pattern, path, 0, 0);
    fitting += expected ? 1 : 0;
    ASSERT_EQ(tag_matches(joined(pattern), joined(path)), expected)
        << joined(pattern) << " and " << joined(path);
  }
  EXPECT_GT(fitting, 100);
}

TEST(TagMatchTest, RolesAreKnownByTheirFirstComponent) {
  EXPECT_TRUE(is_role(""));
  EXPECT_TRUE(is_role("gradient"));
  EXPECT_TRUE(is_role("activation/layers.0"));
  EXPECT_FALSE(is_role("activations"));
  EXPECT_FALSE(is_role("mlp/activation"));
}

TEST(TagMatchTest, ANameIsAPathWithoutStars) {
  EXPECT_TRUE(check_tag_name("encoder/mlp").ok());
  for (const char* bad : {"", "/a", "a/", "a//b", "a*"}) {
    EXPECT_EQ(check_tag_name(bad).code(), Code::kInvalidArgument) << bad;
  }
}

}  // namespace
}  // namespace spillway
