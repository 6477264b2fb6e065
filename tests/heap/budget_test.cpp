// SPDX-License-Identifier: Apache-2.0
#include "tests/heap/heap_fixture.h"

namespace spillway {
namespace {

/// A heap whose reserved bytes a budget caps.
class HeapBudgetTest : public HeapTest {
 protected:
  Result<driver::DevicePtr> request(Bytes size) {
    return heap_->allocate(size, main_, TagId::kUntagged);
  }
};

TEST_F(HeapBudgetTest, ARequestBeyondTheBudgetFailsAndReservesNothing) {
  heap_->limits().set_budget(8_MiB);
  allocate(6_MiB);

  EXPECT_EQ(request(4_MiB).status().code(), Code::kOutOfDeviceMemory);
  EXPECT_TRUE(heap_->limits().would_exceed_budget(4_MiB));
  EXPECT_EQ(heap_->stats().reserved, 6_MiB);
  EXPECT_EQ(heap_->stats().out_of_memory, 0U);  // its caller can still make room
  EXPECT_FALSE(heap_->limits().would_exceed_budget(2_MiB));
  allocate(2_MiB);
}

TEST_F(HeapBudgetTest, CachedMemoryIsReleasedBeforeARequestFails) {
  heap_->limits().set_budget(8_MiB);
  free(allocate(6_MiB));

  allocate(8_MiB);

  EXPECT_EQ(heap_->stats().reserved, 8_MiB);
}

TEST_F(HeapBudgetTest, TheBudgetIsExceededByAtMostTheRequest) {
  heap_->limits().set_budget(8_MiB);
  allocate(6_MiB);

  heap_->limits().exceed_budget(3_MiB);

  allocate(3_MiB);  // two pages
  EXPECT_EQ(heap_->stats().reserved, 10_MiB);
  EXPECT_TRUE(heap_->limits().would_exceed_budget(2_MiB));
  heap_->limits().set_budget(8_MiB);
  EXPECT_TRUE(heap_->limits().would_exceed_budget(2_MiB));
}

TEST_F(HeapBudgetTest, CachedMemoryBeyondTheBudgetIsReleasedWhenItIsSet) {
  free(allocate(12_MiB));

  heap_->limits().set_budget(8_MiB);

  EXPECT_EQ(heap_->stats().reserved, 0_B);
}

TEST_F(HeapBudgetTest, ARequestBeyondTheLimitDoesNotExceedTheBudget) {
  heap_->limits().set_budget(8_MiB);
  heap_->limits().set_limit(4_MiB);
  allocate(4_MiB);

  EXPECT_FALSE(request(6_MiB).ok());
  EXPECT_FALSE(heap_->limits().would_exceed_budget(6_MiB));
  EXPECT_EQ(heap_->stats().out_of_memory, 1U);
}

TEST_F(HeapBudgetTest, TheBudgetEndsWithAStepThatSetsNone) {
  heap_->placement().set_target(8_MiB);
  heap_->limits().set_budget(8_MiB);
  heap_->placement().end_step();
  EXPECT_EQ(heap_->limits().budget(), 8_MiB);

  heap_->placement().end_step();

  EXPECT_EQ(heap_->limits().budget(), 0_B);
  allocate(16_MiB);
}

TEST_F(HeapBudgetTest, ARestoreExceedsTheBudgetByTheRestoredBytesOnly) {
  const driver::DevicePtr block = allocate(6_MiB);
  ASSERT_TRUE(heap_->evict(std::vector{block}).ok());
  allocate(6_MiB);
  heap_->limits().set_budget(8_MiB);

  ASSERT_TRUE(heap_->restore(std::vector{block}).ok());

  EXPECT_EQ(heap_->stats().reserved, 12_MiB);
  EXPECT_EQ(heap_->limits().budget(), 12_MiB);
  EXPECT_EQ(request(4_MiB).status().code(), Code::kOutOfDeviceMemory);
}

}  // namespace
}  // namespace spillway
