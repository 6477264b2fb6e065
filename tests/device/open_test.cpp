// SPDX-License-Identifier: Apache-2.0
#include "tests/driver/faulted_calls.h"
#include "tests/runtime/runtime_fixture.h"

#include <string>

namespace spillway {
namespace {

/// Each call of one driver function fails in turn while a device is made ready.
class OpenTest : public RuntimeTest, public testing::WithParamInterface<const char*> {
 protected:
  void TearDown() override {
    spillway_emulator_fault(nullptr);
    RuntimeTest::TearDown();
  }
};

TEST_P(OpenTest, ATypedErrorAndTheNextAttemptSucceeds) {
  const std::string name = GetParam();
  const auto used = spillway_emulator_used(0);
  int n = 0;
  for (bool reached = true; reached && n < 100;) {
    ++n;
    make_runtime({});
    const auto calls = spillway_emulator_count(name.c_str());
    const std::string spec = name + ":" + std::to_string(n) + "=unknown";
    ASSERT_EQ(spillway_emulator_fault(spec.c_str()), nullptr);
    const auto device = runtime_->device(DeviceId{0});
    reached = spillway_emulator_count(name.c_str()) - calls >= static_cast<std::uint64_t>(n);
    spillway_emulator_fault(nullptr);

    // Later calls may be for what a device can do without.
    const bool must_fail = reached && n == 1;
    EXPECT_TRUE(must_fail ? !device.ok() : reached || device.ok()) << spec;
    if (!device.ok()) {
      EXPECT_EQ(device.status().code(), Code::kDriver) << spec;
    }
    train(1.0, {1_MiB});
    EXPECT_EQ(last().offloaded, 1_MiB) << spec;
    runtime_.reset();
    EXPECT_EQ(spillway_emulator_used(0), used) << spec;
  }
  EXPECT_GT(n, 1) << name << " is not called";
  make_runtime({});
}

INSTANTIATE_TEST_SUITE_P(Functions,
                         OpenTest,
                         testing::ValuesIn(kFaultedInOpening),
                         [](const auto& test) { return std::string(test.param); });

}  // namespace
}  // namespace spillway
