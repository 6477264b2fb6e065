// SPDX-License-Identifier: Apache-2.0
#include "allocator/heap/target_experience.h"

#include <gtest/gtest.h>

#include <cstdint>

namespace spillway {
namespace {

using namespace literals;

constexpr int kManyTimes = 1000;

TEST(TargetExperienceTest, AttemptsEndForEachTarget) {
  TargetExperience experience;
  for (const Bytes target : {100_B, 200_B}) {
    int trims = 0;
    int rejections = 0;
    for (int step = 0; step < kManyTimes; ++step) {
      trims += experience.should_trim(target) ? 1 : 0;
      rejections += experience.rejects(target, 90_B, 20_B, 100_B) ? 1 : 0;
    }
    EXPECT_GT(trims, 0);
    EXPECT_LT(trims, kManyTimes);
    EXPECT_GT(rejections, 0);
    EXPECT_LT(rejections, kManyTimes);
  }
}

TEST(TargetExperienceTest, ARejectedPlansShortfallIsReadOnceAndForItsTarget) {
  TargetExperience experience;
  EXPECT_FALSE(experience.rejects(100_B, 80_B, 20_B, 100_B));
  ASSERT_TRUE(experience.rejects(100_B, 90_B, 20_B, 100_B));
  EXPECT_EQ(experience.take_shortfall(100_B), 10_B);
  EXPECT_EQ(experience.take_shortfall(100_B), 0_B);
  ASSERT_TRUE(experience.rejects(100_B, 90_B, 20_B, 100_B));
  EXPECT_EQ(experience.take_shortfall(200_B), 0_B);
}

TEST(TargetExperienceTest, APlanThatReservesTooMuchIsGivenUpAndTheNextOneLeavesMoreRoom) {
  TargetExperience experience;
  // A plan of 90 bytes in a room of 95; its steps reserve 107 bytes of a target of 100.
  TargetExperience::Followed plan{90_B, 95_B, 50, 1};
  EXPECT_FALSE(experience.gives_up(100_B, 107_B, plan));  // its first step
  ++plan.steps;
  EXPECT_FALSE(experience.gives_up(100_B, 100_B, plan));  // within the target
  EXPECT_FALSE(experience.gives_up(0_B, 107_B, plan));
  ASSERT_TRUE(experience.gives_up(100_B, 107_B, plan));

  EXPECT_EQ(experience.to_leave(100_B), 5_B + 7_B);
  EXPECT_EQ(experience.to_leave(200_B), 0_B);
  EXPECT_FALSE(experience.gives_up(100_B, 107_B, plan));  // it has not become smaller
  plan.size = 83_B;
  EXPECT_TRUE(experience.gives_up(100_B, 101_B, plan));
  EXPECT_EQ(experience.to_leave(100_B), 12_B + 1_B);
}

TEST(TargetExperienceTest, PlansAreNotGivenUpForever) {
  TargetExperience experience;
  TargetExperience::Followed plan{Bytes{1000000}, Bytes{1000000}, 50, 2};
  int given_up = 0;
  for (int attempt = 0; attempt < kManyTimes; ++attempt) {
    plan.size = plan.size - 1_B;
    given_up += experience.gives_up(100_B, 101_B, plan) ? 1 : 0;
  }
  EXPECT_GT(given_up, 0);
  EXPECT_LT(given_up, kManyTimes);
}

TEST(TargetExperienceTest, AboveAFixedNumberOfTargetsNothingIsLearned) {
  TargetExperience experience;
  for (std::uint64_t target = 1; target <= kManyTimes; ++target)
    experience.should_trim(Bytes{target});
  EXPECT_FALSE(experience.should_trim(Bytes{kManyTimes}));
  EXPECT_FALSE(experience.rejects(Bytes{kManyTimes}, 90_B, 20_B, 100_B));
  EXPECT_TRUE(experience.should_trim(1_B));
}

}  // namespace
}  // namespace spillway
