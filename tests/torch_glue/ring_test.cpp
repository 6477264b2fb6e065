// SPDX-License-Identifier: Apache-2.0
#include "torch_glue/history/ring.h"

#include <gtest/gtest.h>

#include <optional>
#include <vector>

namespace spillway {
namespace {

/// Holds 3, 4 and 5, the last of five entries.
Ring<int> ring_of_three() {
  Ring<int> ring;
  ring.resize(3);
  for (int entry = 1; entry <= 5; ++entry)
    ring.push(entry);
  return ring;
}

TEST(RingTest, AFullRingHandsBackItsOldestEntry) {
  Ring<int> ring = ring_of_three();

  EXPECT_EQ(ring.push(6), std::optional(3));
  EXPECT_EQ(ring.in_order(), (std::vector{4, 5, 6}));
}

TEST(RingTest, ASmallerRingKeepsItsNewestEntries) {
  Ring<int> ring = ring_of_three();
  ring.resize(2);

  EXPECT_EQ(ring.in_order(), (std::vector{4, 5}));
  EXPECT_EQ(ring.push(6), std::optional(4));
}

TEST(RingTest, ALargerRingKeepsAllAndTheirOrder) {
  Ring<int> ring = ring_of_three();
  ring.resize(4);

  EXPECT_EQ(ring.push(6), std::nullopt);
  EXPECT_EQ(ring.in_order(), (std::vector{3, 4, 5, 6}));
}

TEST(RingTest, AClearedRingBeginsAgain) {
  Ring<int> ring = ring_of_three();
  ring.clear();
  ring.push(6);

  EXPECT_EQ(ring.in_order(), std::vector{6});
}

}  // namespace
}  // namespace spillway
