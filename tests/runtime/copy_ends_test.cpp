// SPDX-License-Identifier: Apache-2.0
#include "allocator/runtime/run_log_state.h"

#include <gtest/gtest.h>

namespace spillway {
namespace {

using driver::Span;

constexpr std::uint64_t kComputing = 1;
constexpr std::uint64_t kCopying = 2;
constexpr std::uint64_t kOther = 3;

/// Submitted when it began.
Span copy(Span::Kind kind, std::uint64_t storage, std::uint64_t begin, std::uint64_t end) {
  Span span;
  span.kind = kind;
  span.stream = kCopying;
  span.storage = storage;
  span.submitted = span.begin = begin;
  span.end = end;
  return span;
}

Span wait(std::uint64_t source, std::uint64_t storage, std::uint64_t begin, std::uint64_t end) {
  Span span = copy(Span::Kind::kWait, storage, begin, end);
  span.stream = kComputing;
  span.other = source;
  return span;
}

class CopyEndsTest : public testing::Test {
 protected:
  void SetUp() override {
    ends_.add(copy(Span::Kind::kIn, 7, 100, 200));
    ends_.add(copy(Span::Kind::kIn, 8, 200, 300));
  }

  CopyEnds ends_;
};

TEST_F(CopyEndsTest, AWaitIsOverWhenItsStorageHasCome) {
  EXPECT_EQ(ends_.over(wait(kCopying, 7, 150, 400)), 200U);
  EXPECT_EQ(ends_.over(wait(kCopying, 8, 250, 400)), 300U);
  EXPECT_EQ(ends_.over(wait(kCopying, 8, 250, 280)), 280U);
}

TEST_F(CopyEndsTest, AWaitForWhatHasComeBeforeWasNone) {
  EXPECT_EQ(ends_.over(wait(kCopying, 7, 250, 260)), 250U);
}

TEST_F(CopyEndsTest, WithoutAStorageTheLastCopyThatHadBeenGivenCounts) {
  EXPECT_EQ(ends_.over(wait(kCopying, 0, 150, 400)), 200U);
  EXPECT_EQ(ends_.over(wait(kCopying, 9, 250, 400)), 300U);
  EXPECT_EQ(ends_.over(wait(kCopying, 0, 50, 400)), 50U);
}

TEST_F(CopyEndsTest, AStorageThatWentOutIsNotOneThatCame) {
  ends_.add(copy(Span::Kind::kOut, 7, 300, 500));
  EXPECT_EQ(ends_.over(wait(kCopying, 7, 310, 600)), 310U);
  EXPECT_EQ(ends_.over(wait(kCopying, 0, 310, 600)), 500U);
}

TEST_F(CopyEndsTest, WaitsForStreamsThatDoNotCopyCountWhole) {
  EXPECT_EQ(ends_.over(wait(kOther, 7, 150, 400)), 400U);
  EXPECT_TRUE(ends_.copies(DeviceId{0}, kCopying));
  EXPECT_FALSE(ends_.copies(DeviceId{1}, kCopying));
  EXPECT_FALSE(ends_.copies(DeviceId{0}, kOther));
}

TEST_F(CopyEndsTest, ManyCopiesAreForgottenFromTheFirstOn) {
  for (std::uint64_t i = 0; i < 300; ++i)
    ends_.add(copy(Span::Kind::kIn, 1000 + i, 1000 + i, 1001 + i));
  EXPECT_EQ(ends_.over(wait(kCopying, 7, 150, 400)), 150U);
  EXPECT_EQ(ends_.over(wait(kCopying, 1299, 1299, 2000)), 1300U);
}

}  // namespace
}  // namespace spillway
