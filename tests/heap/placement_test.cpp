// SPDX-License-Identifier: Apache-2.0
#include "allocator/heap/placement.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

namespace spillway {
namespace {

using namespace literals;

TEST(PlacementTest, MostLiveIsTheLargestSumAtOneTime) {
  const std::vector<Lifetime> blocks{{4_KiB, 0, 2}, {8_KiB, 1, 3}, {2_KiB, 2, 4}};

  EXPECT_EQ(most_live(blocks), 12_KiB);
}

TEST(PlacementTest, BlocksThatNeverMeetShareAPlace) {
  const std::vector<Lifetime> blocks{{4_KiB, 0, 1}, {8_KiB, 1, 2}, {2_KiB, 2, 3}};

  EXPECT_EQ(place(blocks).size, 8_KiB);
}

TEST(PlacementTest, WhatBirthOrderWouldSplitIsPlacedWhole) {
  // In order of birth, the third would lie behind the second, where the first leaves too little.
  const std::vector<Lifetime> blocks{{4_KiB, 0, 2}, {4_KiB, 1, 4}, {8_KiB, 2, 4}};

  EXPECT_EQ(place(blocks).size, most_live(blocks));
}

TEST(PlacementTest, WhatEveryOrderLeavesStandingOutIsPlacedFirst) {
  // By birth, by size and by area the last lies behind the third, which the first kept from the
  // begin.
  const std::vector<Lifetime> blocks{{2_KiB, 0, 3}, {4_KiB, 1, 2}, {3_KiB, 2, 5}, {4_KiB, 3, 5}};

  EXPECT_EQ(place(blocks).size, most_live(blocks));
}

TEST(PlacementTest, NothingNeedsNothing) {
  EXPECT_EQ(place({}).size, 0_B);
}

TEST(PlacementTest, BlocksThatMeetNeverOverlap) {
  constexpr unsigned kSeed = 7;
  SCOPED_TRACE("seed " + std::to_string(kSeed));
  std::mt19937 random(kSeed);
  for (int round = 0; round < 50; ++round) {
    std::vector<Lifetime> blocks;
    for (std::uint32_t i = 0; i < 100; ++i)
      blocks.push_back(
          {Bytes{512 * (1 + random() % 64)}, i, i + 1 + static_cast<std::uint32_t>(random() % 40)});

    const Placement placed = place(blocks);

    ASSERT_EQ(placed.offsets.size(), blocks.size());
    for (std::size_t i = 0; i < blocks.size(); ++i) {
      ASSERT_LE(placed.offsets[i] + blocks[i].size, placed.size);
      for (std::size_t j = 0; j < i; ++j) {
        if (!blocks[i].meets(blocks[j])) continue;
        ASSERT_TRUE(placed.offsets[i] + blocks[i].size <= placed.offsets[j] ||
                    placed.offsets[j] + blocks[j].size <= placed.offsets[i])
            << i << " and " << j;
      }
    }
  }
}

}  // namespace
}  // namespace spillway
