// SPDX-License-Identifier: Apache-2.0
#include "torch_glue/pools/pool_table.h"

#include <gtest/gtest.h>

namespace spillway {
namespace {

/// A pool that all of this thread's allocations go to.
class OpenPoolTest : public testing::Test {
 protected:
  void SetUp() override {
    pools_.add_user(0, kName);
    pools_.open(0, kName, [](cudaStream_t) { return true; });
  }

  static constexpr c10::MempoolId_t kName{0, 7};
  PoolTable pools_;
};

TEST_F(OpenPoolTest, ThatIsNotToSplitDoesNotFromThenOn) {
  EXPECT_FALSE(pools_.route(0, nullptr).no_split);

  pools_.set_no_split(0, kName);

  EXPECT_TRUE(pools_.route(0, nullptr).no_split);
}

TEST_F(OpenPoolTest, ThatIsLentWhenMemoryIsOutIsSoFromThenOn) {
  pools_.set_use_on_oom(0, kName, true);

  EXPECT_TRUE(pools_.route(0, nullptr).use_on_oom);
  EXPECT_EQ(pools_.last_resorts(0).size(), 1U);
}

TEST_F(OpenPoolTest, IsNotThatOfAnotherDevice) {
  EXPECT_EQ(pools_.route(1, nullptr).id, PoolId::kShared);
}

}  // namespace
}  // namespace spillway
