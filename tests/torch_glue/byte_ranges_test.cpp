// SPDX-License-Identifier: Apache-2.0
#include "torch_glue/saved_storage/byte_ranges.h"

#include <gtest/gtest.h>

#include <ostream>

namespace spillway {

void PrintTo(const ByteRange& range, std::ostream* out) {
  *out << range.begin.count() << ".." << range.end.count();
}

namespace {

using namespace literals;
using Ranges = std::vector<ByteRange>;

TEST(ByteRangesTest, WhatIsUncoveredLiesBetweenAndAroundWhatIsKnown) {
  const Ranges known{{10_B, 20_B}, {20_B, 30_B}, {40_B, 50_B}};

  EXPECT_EQ(uncovered({0_B, 60_B}, known), (Ranges{{0_B, 10_B}, {30_B, 40_B}, {50_B, 60_B}}));
  EXPECT_EQ(uncovered({15_B, 45_B}, known), (Ranges{{30_B, 40_B}}));
  EXPECT_EQ(uncovered({12_B, 28_B}, known), Ranges{});
  EXPECT_EQ(uncovered({50_B, 60_B}, known), (Ranges{{50_B, 60_B}}));
  EXPECT_EQ(uncovered({30_B, 40_B}, {}), (Ranges{{30_B, 40_B}}));
}

TEST(ByteRangesTest, ARangeOfItsOwnIsCopiedAsItIs) {
  const ByteRange half{0_B, 512_KiB};

  EXPECT_EQ(extend_to_block(half, {}, 1_MiB), half);
  EXPECT_EQ(extend_to_block({20_B, 100_B}, {}, 10000_B), (ByteRange{20_B, 100_B}));
}

TEST(ByteRangesTest, BesideWhatIsKnownWholeBlocksAreCopied) {
  const Ranges known{{300_KiB, 301_KiB}};
  const ByteRange blocks{256_KiB, 320_KiB};

  EXPECT_EQ(extend_to_block({301_KiB, 302_KiB}, known, 1_MiB), blocks);
  EXPECT_EQ(extend_to_block({290_KiB, 291_KiB}, known, 1_MiB), blocks);
  const ByteRange after{365_KiB, 366_KiB};
  const ByteRange before{235_KiB, 236_KiB};
  EXPECT_EQ(extend_to_block(after, known, 1_MiB), after);
  EXPECT_EQ(extend_to_block(before, known, 1_MiB), before);
}

TEST(ByteRangesTest, BlocksEndWithTheStorage) {
  EXPECT_EQ(extend_to_block({10_KiB, 11_KiB}, {{9_KiB, 10_KiB}}, 30_KiB), (ByteRange{0_B, 30_KiB}));
}

TEST(ByteRangesTest, LittleThatIsLeftOverAtAnEndIsCopiedAlong) {
  EXPECT_EQ(extend_to_block({10_B, 990_B}, {}, 1000_B), (ByteRange{0_B, 1000_B}));
  EXPECT_EQ(extend_to_block({200_B, 999_B}, {}, 1000_B), (ByteRange{200_B, 1000_B}));
  const ByteRange most{1_MiB, 7_MiB};
  EXPECT_EQ(extend_to_block(most, {}, 8_MiB), most);
}

}  // namespace
}  // namespace spillway
