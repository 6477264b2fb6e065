// SPDX-License-Identifier: Apache-2.0
#include "emulator/device/strided.h"

#include <gtest/gtest.h>

#include <random>
#include <set>
#include <vector>

namespace {

using spillway::emulator::Range;
using spillway::emulator::Strided;
using Axes = std::vector<Strided::Axis>;

constexpr std::uintptr_t kBase = 1U << 20U;
constexpr Range kEverywhere{0, 1ULL << 40U};

Strided view(std::size_t offset, std::size_t run, const Axes& axes) {
  return Strided::of(kBase + offset, run, axes.size(), axes.data()).value();
}

TEST(StridedTest, RowsThatTouchAreOneRun) {
  EXPECT_TRUE(view(0, 4, {{8, 4}, {3, 32}}).is_dense());
  EXPECT_EQ(view(0, 4, {{8, 4}, {3, 32}}), Strided(Range{kBase, kBase + 96}));
}

TEST(StridedTest, TheExtentEndsBehindTheLastByte) {
  EXPECT_EQ(view(16, 4, {{3, 100}}).extent().end, kBase + 220);
  EXPECT_EQ(view(16, 4, {{3, 100}}).bytes(), 12U);
}

TEST(StridedTest, ColumnsOfOneMatrixAreApartHoweverManyRowsItHas) {
  const Strided left = view(0, 64, {{std::size_t{1} << 30U, 128}});
  const Strided right = view(64, 64, {{std::size_t{1} << 30U, 128}});

  EXPECT_FALSE(left.meets(right, kEverywhere));
  EXPECT_TRUE(left.meets(view(63, 1, {{std::size_t{1} << 30U, 128}}), kEverywhere));
}

TEST(StridedTest, WhatLiesOutsideDoesNotCount) {
  const Strided rows = view(0, 4, {{4, 100}});

  EXPECT_TRUE(rows.meets(Range{kBase + 100, kBase + 101}, kEverywhere));
  EXPECT_TRUE(rows.meets(rows, {kBase + 4, kBase + 101}));
  EXPECT_FALSE(rows.meets(rows, {kBase + 4, kBase + 100}));
}

TEST(StridedTest, WhatLeavesTheAddressSpaceIsRefused) {
  const Strided::Axis far{2, ~std::size_t{0}};
  EXPECT_FALSE(Strided::of(kBase, 4, 1, &far));
  const Strided::Axis many{~std::size_t{0}, 16};
  EXPECT_FALSE(Strided::of(kBase, 4, 1, &many));
}

TEST(StridedTest, MeetsExactlyWhereAByteIsShared) {
  std::mt19937 dice(7);  // NOLINT: the same cases each time
  const auto up_to = [&](std::size_t most) {
    return static_cast<std::size_t>(dice() % (most + 1));
  };
  int met = 0;
  constexpr int kCases = 20000;
  for (int i = 0; i < kCases; ++i) {
    std::vector<Strided> views;
    std::vector<std::set<std::uintptr_t>> bytes(2);
    const Range within{kBase + up_to(40), kBase + 40 + up_to(200)};
    for (auto& set : bytes) {
      const Axes axes{
          {1 + up_to(3), up_to(50)}, {1 + up_to(3), up_to(20)}, {1 + up_to(2), up_to(70)}};
      const std::size_t at = up_to(60);
      const std::size_t run = 1 + up_to(5);
      views.push_back(view(at, run, axes));
      for (std::size_t x = 0; x < axes[0].count; ++x)
        for (std::size_t y = 0; y < axes[1].count; ++y)
          for (std::size_t z = 0; z < axes[2].count; ++z)
            for (std::size_t b = 0; b < run; ++b)
              set.insert(kBase + at + x * axes[0].stride + y * axes[1].stride + z * axes[2].stride +
                         b);
    }
    const bool shared = std::any_of(bytes[0].begin(), bytes[0].end(), [&](std::uintptr_t byte) {
      return bytes[1].contains(byte) && within.contains({byte, byte + 1});
    });
    ASSERT_EQ(views[0].meets(views[1], within), shared) << "case " << i;
    ASSERT_EQ(views[1].meets(views[0], within), shared) << "case " << i;
    met += shared ? 1 : 0;
  }
  EXPECT_GT(met, kCases / 10);
  EXPECT_LT(met, kCases - kCases / 10);
}

}  // namespace
