// SPDX-License-Identifier: Apache-2.0
#include "torch_glue/saved_storage/recompute_chain.h"

#include <gtest/gtest.h>

namespace spillway {
namespace {

using namespace literals;

RecomputeChain joined(RecomputeChain chain, const RecomputeChain& other) {
  chain.join(other);
  return chain;
}

TEST(RecomputeChainTest, OfLongOperandsTheLongerAndTheWiderCounts) {
  const RecomputeChain wide{6, 100_B};
  const RecomputeChain narrow{10, 1_B};  // such as the scales of channels
  for (const RecomputeChain& both : {joined(wide, narrow), joined(narrow, wide)}) {
    EXPECT_EQ(both.length, 10);
    EXPECT_EQ(both.narrowest, 100_B);
  }
}

TEST(RecomputeChainTest, AShortOperandDoesNotMakeAChainWide) {
  const RecomputeChain activation{6, 10_B};
  const RecomputeChain weight{1, 100_B};  // its cast
  for (const RecomputeChain& both : {joined(activation, weight), joined(weight, activation)}) {
    EXPECT_EQ(both.length, 6);
    EXPECT_EQ(both.narrowest, 10_B);
  }
}

}  // namespace
}  // namespace spillway
