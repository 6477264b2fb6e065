// SPDX-License-Identifier: Apache-2.0
#include "allocator/runtime/runtime.h"
#include "allocator/tag/tag.h"

#include <gtest/gtest.h>

#include <spillway/spillway.h>

#include <string>
#include <thread>

namespace spillway {
namespace {

TEST(TagsTest, ABlockIsUnderTheInnermostTagOfItsThread) {
  ASSERT_EQ(spillway_tag_push("optimizer"), SPILLWAY_OK);
  ASSERT_EQ(spillway_tag_push("state"), SPILLWAY_OK);
  void* block = nullptr;
  ASSERT_EQ(spillway_allocate(0, 4096, nullptr, &block), SPILLWAY_OK);

  const TagId tag =
      Runtime::instance().device(DeviceId{0}).value()->heap().find(driver::DevicePtr(block)).tag;

  EXPECT_EQ(tag_name(tag), "optimizer/state");
  EXPECT_EQ(spillway_tag_pop(), SPILLWAY_OK);
  EXPECT_EQ(tag_name(current_tag()), "optimizer");
  EXPECT_EQ(spillway_tag_pop(), SPILLWAY_OK);
  EXPECT_EQ(spillway_release(block), SPILLWAY_OK);
}

TEST(TagsTest, APopWithoutAPushIsRefused) {
  EXPECT_EQ(spillway_tag_pop(), SPILLWAY_NOT_READY);
  EXPECT_NE(std::string(spillway_last_error()).find("spillway_tag_push"), std::string::npos);
}

TEST(TagsTest, WhatIsNoPathIsRefusedAndOpensNothing) {
  EXPECT_EQ(spillway_tag_push(nullptr), SPILLWAY_INVALID_ARGUMENT);
  // For users: without the name of a source file.
  EXPECT_STREQ(spillway_last_error(),
               "spillway_tag_push: tag is null. Pass a path such as \"model/layer\".");
  EXPECT_EQ(spillway_tag_push("a//b"), SPILLWAY_INVALID_ARGUMENT);
  EXPECT_EQ(spillway_tag_pop(), SPILLWAY_NOT_READY);
}

TEST(TagsTest, AnotherThreadHasItsOwnTags) {
  ASSERT_EQ(spillway_tag_push("mine"), SPILLWAY_OK);
  TagId seen = intern_tag("mine");

  std::thread([&] { seen = current_tag(); }).join();

  EXPECT_EQ(seen, TagId::kUntagged);
  EXPECT_EQ(spillway_tag_pop(), SPILLWAY_OK);
}

}  // namespace
}  // namespace spillway
