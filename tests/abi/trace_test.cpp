// SPDX-License-Identifier: Apache-2.0
#include "allocator/lifetime/trace.h"

#include <gtest/gtest.h>

#include <spillway/spillway.h>
#include <unistd.h>

#include <filesystem>
#include <string>

namespace spillway {
namespace {

class TraceTest : public testing::Test {
 protected:
  void TearDown() override { std::filesystem::remove(path_); }

  // Cases run beside each other, each in a process of its own.
  const std::string path_ =
      testing::TempDir() + "spillway_abi_" + std::to_string(getpid()) + ".trace";
};

TEST_F(TraceTest, ATraceHasTheLivesBetweenItsBeginAndItsEnd) {
  void* before = nullptr;
  void* block = nullptr;
  ASSERT_EQ(spillway_allocate(0, 512, nullptr, &before), SPILLWAY_OK);

  ASSERT_EQ(spillway_trace_begin(0, path_.c_str()), SPILLWAY_OK) << spillway_last_error();
  ASSERT_EQ(spillway_tag_push("seen"), SPILLWAY_OK);
  ASSERT_EQ(spillway_allocate(0, 1000, nullptr, &block), SPILLWAY_OK);
  ASSERT_EQ(spillway_tag_pop(), SPILLWAY_OK);
  ASSERT_EQ(spillway_release(block), SPILLWAY_OK);
  ASSERT_EQ(spillway_release(before), SPILLWAY_OK);
  ASSERT_EQ(spillway_trace_end(), SPILLWAY_OK) << spillway_last_error();

  const auto trace = load_trace(path_);
  ASSERT_TRUE(trace.ok()) << trace.status().message();
  ASSERT_EQ(trace.value().events.size(), 2U);
  const TraceEvent& birth = trace.value().events[0];
  EXPECT_EQ(birth.kind, TraceEvent::Kind::kAllocate);
  EXPECT_EQ(birth.bytes, Bytes{1000});
  EXPECT_EQ(trace.value().tags.at(birth.tag), "seen");
  EXPECT_EQ(trace.value().events[1].kind, TraceEvent::Kind::kFree);
  EXPECT_TRUE(trace.value().complete);
}

TEST_F(TraceTest, WhatCannotBeATraceIsRefused) {
  EXPECT_EQ(spillway_trace_begin(0, nullptr), SPILLWAY_INVALID_ARGUMENT);
  EXPECT_EQ(spillway_trace_begin(0, ""), SPILLWAY_INVALID_ARGUMENT);
  EXPECT_EQ(spillway_trace_begin(0, "/nowhere/at/all"), SPILLWAY_INVALID_ARGUMENT);
  EXPECT_EQ(spillway_trace_begin(9, path_.c_str()), SPILLWAY_INVALID_ARGUMENT);
  EXPECT_EQ(spillway_trace_end(), SPILLWAY_NOT_READY);
}

TEST_F(TraceTest, OneIsWrittenAtATime) {
  ASSERT_EQ(spillway_trace_begin(0, path_.c_str()), SPILLWAY_OK);

  EXPECT_EQ(spillway_trace_begin(0, path_.c_str()), SPILLWAY_NOT_READY);
  EXPECT_EQ(spillway_trace_end(), SPILLWAY_OK);
}

}  // namespace
}  // namespace spillway
