// SPDX-License-Identifier: Apache-2.0
#include "allocator/tag/tag.h"

#include <gtest/gtest.h>

#include <string>
#include <thread>
#include <vector>

namespace spillway {
namespace {

TEST(TagTest, ANameHasOneId) {
  const TagId first = intern_tag("encoder");

  EXPECT_EQ(intern_tag(std::string("enc") + "oder"), first);
  EXPECT_NE(intern_tag("decoder"), first);
  EXPECT_EQ(tag_name(first), "encoder");
}

TEST(TagTest, TheEmptyNameIsUntagged) {
  EXPECT_EQ(intern_tag(""), TagId::kUntagged);
  EXPECT_EQ(tag_name(TagId::kUntagged), "");
}

TEST(TagTest, ScopesNest) {
  const TagId outer = intern_tag("outer");
  const TagId inner = intern_tag("inner");
  const TagScope first(outer);
  {
    const TagScope second(inner);
    EXPECT_EQ(current_tag(), inner);
  }

  EXPECT_EQ(current_tag(), outer);
}

TEST(TagTest, PushedNamesLieInWhatIsOpen) {
  const TagScope outer(intern_tag("encoder"));
  const TagId mlp = push_tag("mlp").value();
  EXPECT_EQ(tag_name(mlp), "encoder/mlp");
  EXPECT_EQ(current_tag(), mlp);
  EXPECT_EQ(tag_name(push_tag("gate/up").value()), "encoder/mlp/gate/up");
  EXPECT_TRUE(pop_tag());
  EXPECT_EQ(current_tag(), mlp);
  EXPECT_TRUE(pop_tag());

  EXPECT_EQ(tag_name(current_tag()), "encoder");
  EXPECT_FALSE(pop_tag());
}

TEST(TagTest, ABadNameOpensNothing) {
  EXPECT_EQ(push_tag("a//b").status().code(), Code::kInvalidArgument);
  EXPECT_EQ(current_tag(), TagId::kUntagged);
  EXPECT_FALSE(pop_tag());
}

TEST(TagTest, ARoleHoldsWhereNoScopeIsOpen) {
  const TagId role = intern_tag("workspace");
  const TagId before = exchange_role(role);
  EXPECT_EQ(current_tag(), role);
  {
    const TagScope scope(intern_tag("mine"));
    EXPECT_EQ(tag_name(current_tag()), "mine");
    EXPECT_EQ(current_scope(), current_tag());
  }
  EXPECT_EQ(current_scope(), TagId::kUntagged);
  EXPECT_EQ(exchange_role(before), role);
  EXPECT_EQ(current_tag(), TagId::kUntagged);
}

TEST(TagTest, AScopeIsOfItsThreadAlone) {
  const TagScope scope(intern_tag("here"));
  TagId elsewhere = intern_tag("here");
  std::thread([&] { elsewhere = current_tag(); }).join();

  EXPECT_EQ(elsewhere, TagId::kUntagged);
}

TEST(TagTest, ThreadsThatInternTheSameNamesGetTheSameIds) {
  TagId left = TagId::kUntagged;
  TagId right = TagId::kUntagged;
  std::thread first([&] { left = intern_tag("at once"); });
  std::thread second([&] { right = intern_tag("at once"); });
  first.join();
  second.join();

  EXPECT_EQ(left, right);
  EXPECT_EQ(tag_name(left), "at once");
}

TEST(TagTest, ControlCharactersAreInNoName) {
  for (const std::string_view name :
       {std::string_view("a\0b", 3), std::string_view("a\nb"), std::string_view("a\x7F")}) {
    const Status status = check_tag_name(name);
    EXPECT_EQ(status.code(), Code::kInvalidArgument);
    EXPECT_NE(status.detail().find("\"a?"), std::string::npos) << status.detail();
  }
  EXPECT_TRUE(check_tag_name("caf\xC3\xA9").ok());
}

TEST(TagTest, ANameHasAtMost256BytesWithAllThatItLiesIn) {
  ASSERT_TRUE(push_tag(std::string(200, 'o')).ok());
  EXPECT_TRUE(push_tag(std::string(55, 'i')).ok());
  EXPECT_TRUE(pop_tag());

  EXPECT_EQ(push_tag(std::string(56, 'i')).status().code(), Code::kInvalidArgument);
  EXPECT_TRUE(pop_tag());
  EXPECT_FALSE(pop_tag());
}

TEST(TagTest, AnIdThatWasNeverMadeIsABug) {
  EXPECT_DEATH(static_cast<void>(tag_name(TagId{4000000000})), "check failed");
}

std::vector<std::string>& reported() {
  static std::vector<std::string> names;
  return names;
}

TEST(TagTest, WhoWatchesIsReportedOfEachChange) {
  watch_tags([](const std::string& name) { reported().push_back(name); });
  {
    const TagScope outer(intern_tag("outer"));
    const TagScope inner(intern_tag("inner"));
  }
  watch_tags(nullptr);
  { const TagScope after(intern_tag("after")); }

  EXPECT_EQ(reported(), (std::vector<std::string>{"outer", "inner", "outer", ""}));
}

// Last in this file: it uses the table up.
TEST(TagTest, NamesBeyondTheMostAreUntagged) {
  TagId last = intern_tag("full");
  for (int i = 0; i < 65536; ++i)
    last = intern_tag("full " + std::to_string(i));

  EXPECT_EQ(last, TagId::kUntagged);
  EXPECT_EQ(tag_name(intern_tag("full")), "full");
}

}  // namespace
}  // namespace spillway
