// SPDX-License-Identifier: Apache-2.0
#include "allocator/transfer/free_ranges.h"

#include <gtest/gtest.h>

#include <array>
#include <random>

namespace spillway {
namespace {

using namespace literals;
using driver::Fence;

/// Addresses and fences are only compared here, so neither memory nor streams are needed.
class FreeRangesTest : public testing::Test {
 protected:
  std::byte* at(std::size_t offset) { return memory_.data() + offset; }

  std::size_t take(Bytes size) {
    const auto place = ranges_.take(size);
    return place ? static_cast<std::size_t>(place->at - memory_.data()) : kNone;
  }

  static Fence fence(std::uint64_t timeline, std::uint64_t point) {
    static std::array<std::byte, 16> places;
    return {reinterpret_cast<driver::Timeline*>(&places.at(timeline)), point};
  }

  static constexpr std::size_t kNone = ~std::size_t{0};
  std::array<std::byte, 4096> memory_;
  FreeRanges ranges_;
};

TEST_F(FreeRangesTest, TheSmallestRangeThatIsLargeEnoughIsTaken) {
  ranges_.add(at(0), 512_B, at(0), {});
  ranges_.add(at(1024), 128_B, at(1024), {});
  ranges_.add(at(2048), 256_B, at(2048), {});

  EXPECT_EQ(take(192_B), 2048U);
}

TEST_F(FreeRangesTest, TheLowestOfEqualRangesIsTaken) {
  ranges_.add(at(2048), 256_B, at(2048), {});
  ranges_.add(at(1024), 256_B, at(1024), {});

  EXPECT_EQ(take(256_B), 1024U);
}

TEST_F(FreeRangesTest, ARangeThatHasGrownOrShrunkIsFoundByItsNewSize) {
  ranges_.add(at(0), 256_B, at(0), {});
  ranges_.add(at(1024), 512_B, at(1024), {});
  ranges_.add(at(2048), 768_B, at(2048), {});
  ASSERT_EQ(take(704_B), 2048U);  // 64 are left there

  EXPECT_EQ(take(64_B), 2752U);
  ranges_.add(at(256), 512_B, at(0), {});  // the first one has 768 now
  EXPECT_EQ(take(576_B), 0U);
  EXPECT_EQ(take(512_B), 1024U);
}

TEST_F(FreeRangesTest, NothingIsTakenWhereNothingIsLargeEnough) {
  ranges_.add(at(0), 128_B, at(0), {});

  EXPECT_EQ(take(192_B), kNone);
}

TEST_F(FreeRangesTest, NeighborsOnBothSidesMerge) {
  ranges_.add(at(0), 128_B, at(0), {});
  ranges_.add(at(256), 128_B, at(0), {});
  ranges_.add(at(128), 128_B, at(0), {});

  EXPECT_EQ(take(384_B), 0U);
}

TEST_F(FreeRangesTest, ARangeDoesNotMergeWithThePieceBelow) {
  ranges_.add(at(0), 128_B, at(0), {});
  ranges_.add(at(128), 128_B, at(128), {});

  EXPECT_EQ(take(192_B), kNone);
}

TEST_F(FreeRangesTest, ARangeDoesNotMergeWithThePieceAbove) {
  ranges_.add(at(128), 128_B, at(128), {});
  ranges_.add(at(0), 128_B, at(0), {});

  EXPECT_EQ(take(192_B), kNone);
}

TEST_F(FreeRangesTest, APlaceComesWithTheFencesThatItOverlapsAndNoOthers) {
  ranges_.add(at(0), 128_B, at(0), {fence(0, 1)});
  ranges_.add(at(128), 128_B, at(0), {fence(1, 1)});
  ranges_.add(at(256), 128_B, at(0), {fence(2, 1)});

  const auto place = ranges_.take(192_B);

  EXPECT_EQ(place->fences, (driver::FenceSet{fence(0, 1), fence(1, 1)}));
}

TEST_F(FreeRangesTest, TheRestOfAFencedRangeKeepsItsFence) {
  ranges_.add(at(0), 256_B, at(0), {fence(0, 1)});
  take(64_B);

  EXPECT_EQ(ranges_.take(192_B)->fences, (driver::FenceSet{fence(0, 1)}));
}

TEST_F(FreeRangesTest, OnlyTheLatestFenceOfATimelineIsHandedOut) {
  ranges_.add(at(0), 128_B, at(0), {fence(0, 7)});
  ranges_.add(at(128), 128_B, at(0), {fence(0, 3)});

  EXPECT_EQ(ranges_.take(256_B)->fences, (driver::FenceSet{fence(0, 7)}));
}

TEST_F(FreeRangesTest, FencedBytesAreCountedUntilTheyAreTaken) {
  ranges_.add(at(0), 128_B, at(0), {});
  ranges_.add(at(128), 128_B, at(0), {fence(0, 1)});
  EXPECT_EQ(ranges_.fenced(), 128_B);

  take(192_B);

  EXPECT_EQ(ranges_.fenced(), 64_B);
}

TEST_F(FreeRangesTest, APieceWithAFenceCannotBeRemoved) {
  ranges_.add(at(0), 128_B, at(0), {});
  ranges_.add(at(128), 128_B, at(0), {fence(0, 1)});

  EXPECT_FALSE(ranges_.remove_piece(at(0), 256_B));
}

TEST_F(FreeRangesTest, APieceWithATakenPartCannotBeRemoved) {
  ranges_.add(at(0), 256_B, at(0), {});
  take(64_B);

  EXPECT_FALSE(ranges_.remove_piece(at(0), 256_B));
}

TEST_F(FreeRangesTest, ARemovedPieceIsNotTakenFrom) {
  ranges_.add(at(0), 256_B, at(0), {});

  EXPECT_TRUE(ranges_.remove_piece(at(0), 256_B));
  EXPECT_EQ(take(64_B), kNone);
}

TEST_F(FreeRangesTest, AfterAnySequenceEachByteCarriesTheFenceItWasReleasedWith) {
  constexpr std::size_t kUnits = 64;
  std::mt19937_64 random(3);
  std::array<std::uint64_t, kUnits> last{};  // the fence of each unit of 64 bytes
  std::vector<std::pair<std::size_t, std::size_t>> out;
  ranges_.add(at(0), 4096_B, at(0), {});
  for (std::uint64_t point = 1; point < 5000; ++point) {
    const std::size_t units = 1 + random() % 9;
    if (const auto place = ranges_.take(Bytes{units * 64})) {
      const auto first = static_cast<std::size_t>(place->at - memory_.data()) / 64;
      std::uint64_t latest = 0;
      for (std::size_t unit = first; unit < first + units; ++unit)
        latest = std::max(latest, last.at(unit));
      ASSERT_EQ(place->fences.empty() ? 0 : place->fences.begin()->point, latest);
      out.emplace_back(first, units);
    } else {
      ASSERT_FALSE(out.empty());
      std::swap(out.at(random() % out.size()), out.back());
      const auto [first, given] = out.back();
      out.pop_back();
      for (std::size_t unit = first; unit < first + given; ++unit)
        last.at(unit) = point;
      ranges_.add(at(first * 64), Bytes{given * 64}, at(0), {fence(0, point)});
    }
  }
}

}  // namespace
}  // namespace spillway
