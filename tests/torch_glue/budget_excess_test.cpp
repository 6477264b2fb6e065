// SPDX-License-Identifier: Apache-2.0
#include "torch_glue/model_state/budget_excess.h"

#include "tests/torch_glue/model_state_fixture.h"

namespace spillway {
namespace {

class BudgetExcessTest : public ModelStateTest {
 protected:
  static constexpr std::int64_t kLarge = 6 << 20;
  static constexpr Bytes kLargeSize{kLarge * sizeof(float)};

  static void hold_budget(int index) {
    Budget budget;
    budget.bytes = device(index).heap().limits().smallest_budget();
    ASSERT_GT(2 * kLargeSize.count(), budget.bytes.count());
    ASSERT_TRUE(device(index).budget().hold(budget).ok());
  }

  void TearDown() override {
    for (const int index : {0, 1})
      EXPECT_TRUE(device(index).budget().hold({}).ok());
    ModelStateTest::TearDown();
  }
};

TEST_F(BudgetExcessTest, AGuardedOperatorIsNamedWithItsTensors) {
  hold_budget(0);
  const at::Tensor x = managed(0, kLarge);
  ManagedStorages::instance().names().set(of(x)->id(), "weight");
  const at::Tensor result = x.neg();
  const auto found = largest_budget_excess(DeviceId{0});
  ASSERT_TRUE(found);
  EXPECT_EQ(found->op, "aten::neg");
  EXPECT_EQ(found->allocated, kLargeSize);
  EXPECT_GT(found->needed, device(0).budget().of_job());
  ASSERT_EQ(found->arguments.size(), 1U);
  EXPECT_EQ(found->arguments[0].name, "weight");
  EXPECT_EQ(found->arguments[0].of, "parameters");
  EXPECT_EQ(found->arguments[0].type, "float32");
  EXPECT_EQ(found->arguments[0].sizes, std::vector<std::int64_t>{kLarge});
  EXPECT_EQ(found->arguments[0].bytes, kLargeSize);
  EXPECT_GE(found->resident[0], kLargeSize);
}

TEST_F(BudgetExcessTest, AnotherOperatorIsNamedByTheCallStack) {
  const at::Tensor x = on_device(values(0, kLarge), 1);
  hold_budget(1);
  const at::Tensor result = x.neg();
  const auto found = largest_budget_excess(DeviceId{1});
  ASSERT_TRUE(found);
  EXPECT_EQ(found->op, "aten::neg");
  EXPECT_TRUE(found->arguments.empty());
}

}  // namespace
}  // namespace spillway
