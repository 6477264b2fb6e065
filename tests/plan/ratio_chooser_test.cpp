// SPDX-License-Identifier: Apache-2.0
#include "allocator/plan/ratio_chooser.h"

#include "tests/plan/choices.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <random>
#include <set>

namespace spillway {
namespace {

class RandomShapes : public testing::TestWithParam<double> {};

TEST_P(RandomShapes, EveryPrefixOfANewShapeMeetsTheRatio) {
  std::mt19937_64 random(7);
  for (int trial = 0; trial < 200; ++trial) {
    RatioChooser chooser(ratio(GetParam()));
    Bytes largest;
    for (const Bytes size : random_sizes(random)) {
      chooser.choose(size);
      largest = std::max(largest, size);
      ASSERT_TRUE(meets(chooser, largest))
          << "trial " << trial << ", storage " << chooser.storages_seen();
    }
  }
}

TEST_P(RandomShapes, EveryStepOfAChangingBatchSizeMeetsTheRatio) {
  std::mt19937_64 random(11);
  for (int trial = 0; trial < 50; ++trial) {
    RatioChooser chooser(ratio(GetParam()));
    const Sizes one = random_sizes(random);
    for (int steps = 0; steps < 12; ++steps) {
      const std::uint64_t batch = 1 + random() % 3;
      Sizes sizes = one;
      for (Bytes& size : sizes)
        size = Bytes{size.count() * batch};
      offer(chooser, sizes);
      ASSERT_TRUE(meets(chooser, *std::max_element(sizes.begin(), sizes.end())))
          << "trial " << trial;
      chooser.end_step();
    }
  }
}

TEST_P(RandomShapes, NoPrefixOfAStepOffloadsMoreThanItsShare) {
  std::mt19937_64 random(19);
  for (int trial = 0; trial < 60; ++trial) {
    RatioChooser chooser(ratio(GetParam()));
    const Sizes unrolled = random_sizes(random);
    for (int steps = 0; steps < 30; ++steps) {
      Sizes sizes(unrolled.begin(),
                  unrolled.begin() + 1 + static_cast<long>(random() % unrolled.size()));
      if (random() % 4 == 0) sizes.back() += 1_B;  // it ends as no other does
      Bytes largest;
      for (const Bytes size : sizes) {
        chooser.choose(size);
        largest = std::max(largest, size);
        ASSERT_TRUE(meets(chooser, largest)) << "trial " << trial << ", step " << steps;
      }
      chooser.end_step();
    }
  }
}

TEST_P(RandomShapes, TheChooserCountsDueStoragesAsOffloaded) {
  std::mt19937_64 random(23);
  for (int trial = 0; trial < 60; ++trial) {
    RatioChooser chooser(ratio(GetParam()));
    const Sizes sizes = random_sizes(random);
    for (int steps = 0; steps < 3; ++steps) {
      const std::vector<Choice> choices = offer(chooser, sizes);
      Bytes offloaded;
      for (std::size_t index = 0; index < sizes.size(); ++index)
        offloaded += choices[index] == Choice::kOffload ? sizes[index] : 0_B;
      ASSERT_EQ(offloaded, chooser.offloaded_bytes());
      chooser.end_step();
    }
  }
}

TEST_P(RandomShapes, APlannedStepWithStoragesReferencedElsewhereMeetsTheRatioOfTheRest) {
  std::mt19937_64 random(13);
  for (int trial = 0; trial < 100; ++trial) {
    RatioChooser chooser(ratio(GetParam()));
    const Sizes sizes = random_sizes(random);
    std::set<std::size_t> alive;
    for (int steps = 0; steps < 3; ++steps) {
      offer(chooser, sizes);
      alive.insert(random() % sizes.size());
      for (const std::size_t index : alive)
        chooser.alive_at_unpack(index);
      chooser.end_step();
    }

    const std::vector<Choice> choices = offer(chooser, sizes);

    Bytes rest;
    Bytes largest;
    for (std::size_t index = 0; index < sizes.size(); ++index) {
      ASSERT_EQ(choices[index] == Choice::kReferencedElsewhere, alive.contains(index));
      if (alive.contains(index)) continue;
      rest += sizes[index];
      largest = std::max(largest, sizes[index]);
    }
    ASSERT_EQ(chooser.seen_bytes(), rest);
    ASSERT_TRUE(meets(chooser, largest)) << "trial " << trial;
  }
}

TEST_P(RandomShapes, AfterADifferenceInMidStepTheEvenSpreadMeetsTheRatio) {
  std::mt19937_64 random(17);
  for (int trial = 0; trial < 100; ++trial) {
    RatioChooser chooser(ratio(GetParam()));
    Sizes sizes = random_sizes(random);
    step(chooser, sizes);
    Bytes largest = *std::max_element(sizes.begin(), sizes.end());
    const Bytes total = sum(sizes);

    offer(chooser, sizes);
    for (Bytes more; more < total;) {
      const Bytes size{1 + random() % largest.count()};
      chooser.choose(size);
      more += size;
    }

    ASSERT_EQ(chooser.mismatches(), 1U);
    ASSERT_TRUE(meets(chooser, largest)) << "trial " << trial;
  }
}

INSTANTIATE_TEST_SUITE_P(Ratios, RandomShapes, testing::Values(0.0, 0.1, 1.0 / 3, 0.5, 0.999, 1.0));

TEST(RatioTest, OnlySharesFromZeroToOneAreRatios) {
  for (const double value : {-0.1,
                             1.0001,
                             std::numeric_limits<double>::quiet_NaN(),
                             std::numeric_limits<double>::infinity()}) {
    const auto made = Ratio::of(value);
    ASSERT_FALSE(made.ok());
    EXPECT_EQ(made.status().code(), Code::kInvalidArgument);
    EXPECT_NE(made.status().detail().find("from 0 to 1"), std::string::npos);
  }
}

TEST(RatioTest, SharesOfHugeTotalsAreExact) {
  EXPECT_EQ(ratio(1.0).share_of(Bytes{~0ULL}), Bytes{~0ULL});
  EXPECT_EQ(ratio(0.5).share_of(Bytes{~0ULL}), Bytes{~0ULL / 2});
  EXPECT_EQ(ratio(0.0).share_of(Bytes{~0ULL}), 0_B);
}

TEST(RatioTest, AShareIsNeverMoreThanTheNumberThatWasGiven) {
  for (const double value : {0.1, 1.0 / 3, 0.7})
    EXPECT_LE(ratio(value).value(), value);
}

TEST(RatioChooserTest, ANewShapeIsSpreadEvenly) {
  RatioChooser chooser(ratio(0.5));

  const auto choices = step(chooser, Sizes(4, 100_B));

  EXPECT_EQ(choices,
            (std::vector{Choice::kKeep, Choice::kOffload, Choice::kKeep, Choice::kOffload}));
}

TEST(RatioChooserTest, AKnownShapeOffloadsItsEarliestStorages) {
  RatioChooser chooser(ratio(0.5));
  step(chooser, Sizes(4, 100_B));

  const auto choices = step(chooser, Sizes(4, 100_B));

  EXPECT_EQ(choices,
            (std::vector{Choice::kOffload, Choice::kOffload, Choice::kKeep, Choice::kKeep}));
}

TEST(RatioChooserTest, APlannedOffloadWaitsUntilTheBytesSeenAllowIt) {
  RatioChooser chooser(ratio(0.5));
  step(chooser, Sizes(4, 100_B));

  EXPECT_EQ(chooser.choose(100_B), Choice::kWait);
  EXPECT_EQ(chooser.offloaded_bytes(), 0_B);
  EXPECT_EQ(chooser.choose(100_B), Choice::kWait);
  EXPECT_EQ(chooser.take_due(), (std::vector<std::size_t>{0}));
  EXPECT_EQ(chooser.offloaded_bytes(), 100_B);
}

TEST(RatioChooserTest, AmongEqualsTheLargestIsOffloaded) {
  const Sizes sizes{100_B, 40_B, 200_B, 60_B};
  const std::vector<std::uint64_t> nodes{7, 8, 8, 9};
  RatioChooser chooser(ratio(0.75));
  offer(chooser, sizes, nodes);
  chooser.end_step();

  const auto choices = offer(chooser, sizes, nodes);

  EXPECT_EQ(choices,
            (std::vector{Choice::kOffload, Choice::kKeep, Choice::kOffload, Choice::kKeep}));
  RatioChooser without(ratio(0.75));
  step(without, sizes);
  EXPECT_EQ(offer(without, sizes),
            (std::vector{Choice::kOffload, Choice::kOffload, Choice::kKeep, Choice::kOffload}));
}

TEST(RatioChooserTest, AStorageUsedAgainAtOnceStaysIfTheRatioIsMetWithoutIt) {
  const Sizes sizes{100_B, 100_B, 100_B, 10_B};
  RatioChooser chooser(ratio(0.5));
  step(chooser, sizes);
  EXPECT_EQ(offer(chooser, sizes).back(),
            Choice::kOffload);  // it fits, and nothing speaks against it
  chooser.used_at_once(3);
  chooser.end_step();

  const auto choices = offer(chooser, sizes);

  EXPECT_EQ(choices, (std::vector{Choice::kOffload, Choice::kKeep, Choice::kKeep, Choice::kKeep}));
}

TEST(RatioChooserTest, AStorageUsedAgainAtOnceIsOffloadedIfTheRatioNeedsIt) {
  for (const double share : {0.5, 1.0}) {
    RatioChooser chooser(ratio(share));
    for (int steps = 0; steps < 2; ++steps) {
      offer(chooser, {10_B, 100_B, 100_B});
      chooser.used_at_once(1);
      chooser.used_at_once(2);
      chooser.end_step();
    }

    const auto choices = offer(chooser, {10_B, 100_B, 100_B});

    EXPECT_EQ(choices.front(), Choice::kOffload);
    EXPECT_EQ(choices.back(), share == 1.0 ? Choice::kOffload : Choice::kKeep);
    EXPECT_TRUE(meets(chooser, 100_B));
  }
}

TEST(RatioChooserTest, AVerdictEndsWhenTheStorageIsNotReferencedElsewhere) {
  RatioChooser chooser(ratio(1.0));
  offer(chooser, Sizes(2, 100_B));
  EXPECT_TRUE(chooser.alive_at_unpack(0));
  chooser.end_step();
  EXPECT_EQ(offer(chooser, Sizes(2, 100_B)).front(), Choice::kReferencedElsewhere);
  EXPECT_FALSE(chooser.alive_at_unpack(0));  // known
  chooser.end_step();
  EXPECT_EQ(offer(chooser, Sizes(2, 100_B)).front(), Choice::kReferencedElsewhere);
  chooser.unreferenced(0);
  chooser.end_step();

  EXPECT_EQ(offer(chooser, Sizes(2, 100_B)).front(), Choice::kOffload);
}

TEST(RatioChooserTest, AStorageReferencedElsewhereInEverySecondStepIsOffloadedAgainSoon) {
  RatioChooser chooser(ratio(1.0));
  int kept = 0;
  for (int steps = 0; steps < 20; ++steps) {
    const bool held = steps % 2 == 0;
    const bool stays = offer(chooser, {100_B}).front() == Choice::kReferencedElsewhere;
    if (held) chooser.alive_at_unpack(0);
    if (!held && stays) chooser.unreferenced(0);
    kept += stays ? 1 : 0;
    chooser.end_step();
  }

  EXPECT_EQ(kept, 1);
}

TEST(RatioChooserTest, AVerdictIsOfItsShapeOnly) {
  RatioChooser chooser(ratio(1.0));
  step(chooser, {100_B, 200_B});
  offer(chooser, {100_B, 100_B});
  chooser.alive_at_unpack(0);
  chooser.end_step();

  EXPECT_EQ(offer(chooser, {100_B, 200_B}).front(), Choice::kOffload);
  chooser.abandon_step();
  step(chooser, {100_B, 300_B});
  EXPECT_EQ(offer(chooser, {100_B, 300_B}).front(), Choice::kOffload);
}

TEST(RatioChooserTest, AStorageAliveAtItsUnpackIsNotOffloadedAgain) {
  RatioChooser chooser(ratio(1.0));
  offer(chooser, Sizes(2, 100_B));
  chooser.alive_at_unpack(0);
  chooser.end_step();

  step(chooser, Sizes(2, 100_B));
  const auto choices = step(chooser, Sizes(2, 100_B));

  EXPECT_EQ(choices, (std::vector{Choice::kReferencedElsewhere, Choice::kOffload}));
}

TEST(RatioChooserTest, TwoAlternatingShapesAreBothPlanned) {
  RatioChooser chooser(ratio(0.5));
  step(chooser, Sizes(4, 100_B));
  step(chooser, Sizes(4, 300_B));

  offer(chooser, Sizes(4, 100_B));

  EXPECT_TRUE(chooser.matches_known());
  EXPECT_EQ(chooser.mismatches(), 0U);
}

TEST(RatioChooserTest, ADifferentSizeEndsThePlanForTheStep) {
  RatioChooser chooser(ratio(0.5));
  step(chooser, Sizes(4, 100_B));

  const auto choices = offer(chooser, {100_B, 200_B, 100_B});

  EXPECT_FALSE(chooser.matches_known());
  EXPECT_EQ(chooser.mismatches(), 1U);
  EXPECT_EQ(choices, (std::vector{Choice::kOffload, Choice::kKeep, Choice::kOffload}));
}

TEST(RatioChooserTest, ALongerStepEndsThePlan) {
  RatioChooser chooser(ratio(0.5));
  step(chooser, Sizes(2, 100_B));

  offer(chooser, Sizes(3, 100_B));

  EXPECT_EQ(chooser.mismatches(), 1U);
}

TEST(RatioChooserTest, AShorterStepIsNoMismatch) {
  RatioChooser chooser(ratio(0.5));
  step(chooser, Sizes(4, 100_B));

  step(chooser, Sizes(2, 100_B));

  EXPECT_EQ(chooser.mismatches(), 0U);
}

TEST(RatioChooserTest, AStepThatWasGivenUpLeavesThePlanAsItWas) {
  RatioChooser chooser(ratio(0.5));
  step(chooser, Sizes(4, 100_B));
  offer(chooser, Sizes(2, 100_B));

  chooser.abandon_step();

  EXPECT_EQ(chooser.storages_seen(), 0U);
  offer(chooser, Sizes(4, 100_B));
  EXPECT_TRUE(chooser.matches_known());
  EXPECT_EQ(chooser.offloaded_bytes(), 200_B);
}

TEST(RatioChooserTest, AFailedOffloadCountsAsSeenAndNotAsOffloaded) {
  RatioChooser chooser(ratio(1.0));
  offer(chooser, Sizes(2, 100_B));

  chooser.not_offloaded(1);

  EXPECT_EQ(chooser.seen_bytes(), 200_B);
  EXPECT_EQ(chooser.offloaded_bytes(), 100_B);
}

TEST(RatioChooserTest, AStepWithoutStoragesChangesNothing) {
  RatioChooser chooser(ratio(0.5));
  step(chooser, Sizes(4, 100_B));

  chooser.end_step();

  offer(chooser, Sizes(4, 100_B));
  EXPECT_TRUE(chooser.matches_known());
}

TEST(RatioChooserTest, NewShapesDoNotGrowMemoryIndefinitely) {
  RatioChooser chooser(ratio(0.5));
  step(chooser, {1_B});
  for (std::uint64_t size = 2; size < 2000; ++size)
    step(chooser, {Bytes{size}});

  chooser.choose(1_B);

  EXPECT_FALSE(chooser.matches_known());
}

}  // namespace
}  // namespace spillway
