// SPDX-License-Identifier: Apache-2.0
// When room and the link allow a prefetch of model state.
#include "torch_glue/model_state/link_backlog.h"
#include "torch_glue/model_state/recorded_need.h"

#include <gtest/gtest.h>

namespace spillway {
namespace {

using namespace literals;

/// Three uses with 100, 300 and 200 bytes; 400 between the last two.
RecordedNeed recorded() {
  RecordedNeed need;
  need.note(1, 100_B, 0_B);
  need.note(2, 300_B, 150_B);
  need.note(3, 200_B, 400_B);
  need.end_step();
  return need;
}

TEST(RecordedNeedTest, GrowthIsThatOfTheLastStepUntilAUse) {
  const RecordedNeed need = recorded();

  EXPECT_EQ(need.growth(0, 1), 50_B);   // between the uses
  EXPECT_EQ(need.growth(0, 2), 300_B);  // 400 after use 1
  EXPECT_EQ(need.growth(1, 2), 100_B);
  EXPECT_EQ(need.growth(2, 3), 0_B);
}

TEST(RecordedNeedTest, NothingIsKnownBeforeAStepAndBeyondItsEnd) {
  RecordedNeed need;
  need.note(1, 100_B, 0_B);
  EXPECT_EQ(need.growth(0, 1), 0_B);

  need = recorded();
  EXPECT_EQ(need.growth(3, 4), 0_B);
  EXPECT_EQ(need.growth(1, 9), 100_B);
}

TEST(RecordedNeedTest, AStepWithoutUsesPredictsNothing) {
  RecordedNeed need = recorded();
  need.end_step();

  EXPECT_EQ(need.growth(0, 2), 300_B);
}

constexpr Bytes kLarge{std::uint64_t{1} << 30U};

TEST(LinkBacklogTest, CopiesOfAPassAreDoneAfterItsUses) {
  LinkBacklog backlog;
  backlog.begin_pass(0);
  for (int use = 0; use < 8; ++use)
    backlog.use(0_B, true);
  backlog.begin_pass(2 * static_cast<double>(kLarge.count()));  // in 8 uses

  EXPECT_TRUE(backlog.is_long(kLarge));  // queued since the last use
  for (int use = 0; use < 3; ++use) {
    backlog.use(kLarge, true);
    EXPECT_TRUE(backlog.is_long(kLarge)) << use;
  }
  backlog.use(kLarge, true);
  EXPECT_FALSE(backlog.is_long(kLarge));
  // An idle link does not copy ahead.
  for (int use = 0; use < 4; ++use)
    backlog.use(kLarge, true);
  EXPECT_TRUE(backlog.is_long(kLarge + kLarge));
}

TEST(LinkBacklogTest, UsesOutsideOfPassesDoNotChangeThePace) {
  LinkBacklog backlog;
  for (int use = 0; use < 8; ++use)
    backlog.use(0_B, use % 2 == 0);
  backlog.begin_pass(static_cast<double>(kLarge.count()));  // in 4 uses

  for (int use = 0; use < 4; ++use) {
    EXPECT_TRUE(backlog.is_long(kLarge)) << use;
    backlog.use(kLarge, false);
  }
  EXPECT_FALSE(backlog.is_long(kLarge));
}

TEST(LinkBacklogTest, AnUnknownPaceHoldsNothingBack) {
  LinkBacklog backlog;
  backlog.use(0_B, true);
  EXPECT_FALSE(backlog.is_long(kLarge));
  backlog.begin_pass(0);
  backlog.use(kLarge, true);
  EXPECT_FALSE(backlog.is_long(kLarge));
  // What was copied before it is known is done.
  backlog.begin_pass(1);
  EXPECT_FALSE(backlog.is_long(kLarge));
}

}  // namespace
}  // namespace spillway
