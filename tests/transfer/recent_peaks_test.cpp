// SPDX-License-Identifier: Apache-2.0
#include "allocator/transfer/recent_peaks.h"

#include <gtest/gtest.h>

namespace spillway {
namespace {

using namespace literals;

class RecentPeaksTest : public testing::Test {
 protected:
  RecentPeaks peaks_;
};

TEST_F(RecentPeaksTest, NoStepsNeedNothing) {
  EXPECT_EQ(peaks_.largest(), 0_B);
  EXPECT_FALSE(peaks_.vary());
}

TEST_F(RecentPeaksTest, TheLargestOfAllShapesCounts) {
  peaks_.add(1, 3_MiB, false);
  peaks_.add(2, 5_MiB, false);
  peaks_.add(3, 4_MiB, false);

  EXPECT_EQ(peaks_.largest(), 5_MiB);
  EXPECT_TRUE(peaks_.vary());
}

TEST_F(RecentPeaksTest, TheSecondStepOfAShapeReplacesItsFirst) {
  peaks_.add(1, 5_MiB, false);
  peaks_.add(1, 3_MiB, false);

  EXPECT_EQ(peaks_.largest(), 3_MiB);
  EXPECT_FALSE(peaks_.vary());
}

TEST_F(RecentPeaksTest, LaterStepsOfAShapeReplaceNone) {
  for (const Bytes peak : {4_MiB, 5_MiB, 3_MiB})
    peaks_.add(1, peak, false);

  EXPECT_EQ(peaks_.largest(), 5_MiB);
}

TEST_F(RecentPeaksTest, AnEstimateIsReplacedByTheNextStepOfItsShape) {
  peaks_.add(1, 3_MiB, false);
  peaks_.add(1, 3_MiB, false);
  peaks_.add(1, 9_MiB, true);
  peaks_.add(2, 2_MiB, false);
  EXPECT_EQ(peaks_.largest(), 9_MiB);

  peaks_.add(1, 4_MiB, false);

  EXPECT_EQ(peaks_.largest(), 4_MiB);
}

TEST_F(RecentPeaksTest, OldStepsAreDropped) {
  peaks_.add(1, 9_MiB, false);
  for (std::size_t step = 1; step < RecentPeaks::kSteps; ++step)
    peaks_.add(2, 3_MiB, false);
  EXPECT_EQ(peaks_.largest(), 9_MiB);

  peaks_.add(2, 3_MiB, false);
  peaks_.add(2, 3_MiB, false);

  EXPECT_EQ(peaks_.largest(), 3_MiB);
  EXPECT_FALSE(peaks_.vary());
}

}  // namespace
}  // namespace spillway
