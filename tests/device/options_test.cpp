// SPDX-License-Identifier: Apache-2.0
#include "allocator/device/device_runtime.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

namespace spillway {
namespace {

using namespace literals;

/// A variable that is set for a scope.
class Setting {
 public:
  Setting(const char* name, const char* value) : name_(name) { setenv(name, value, 1); }

  ~Setting() { unsetenv(name_); }

  Setting(const Setting&) = delete;
  Setting& operator=(const Setting&) = delete;

 private:
  const char* name_;
};

TEST(RuntimeOptionsTest, LimitsAndReplayAreReadWhereSet) {
  EXPECT_EQ(RuntimeOptions::from_environment().value().pinned_limit, 0_B);
  EXPECT_FALSE(RuntimeOptions::from_environment().value().plan_replay);
  const Setting pinned("SPILLWAY_PINNED_LIMIT", "1.5GiB");
  const Setting node("SPILLWAY_NODE_PINNED_LIMIT", "64MiB");
  const Setting replay("SPILLWAY_PLAN_REPLAY", "1");

  const RuntimeOptions options = RuntimeOptions::from_environment().value();

  EXPECT_EQ(options.pinned_limit, 1536_MiB);
  EXPECT_EQ(options.node_pinned_limit, 64_MiB);
  EXPECT_TRUE(options.plan_replay);
}

TEST(RuntimeOptionsTest, InvalidNamesAndValuesAreErrors) {
  for (const auto* name : {"SPILLWAY_PINED_LIMIT", "SPILLWAY_MEMORY_LIMIT", "SPILLWAY_LOG"}) {
    const Setting setting(name, "lots");

    const auto options = RuntimeOptions::from_environment();

    EXPECT_TRUE(options.status().detail().starts_with(name));
  }
}

TEST(RuntimeOptionsTest, ALimitAboveWhatTheMachineHasIsAnError) {
  for (const char* const name : {"SPILLWAY_PINNED_LIMIT", "SPILLWAY_NODE_PINNED_LIMIT"}) {
    const Setting setting(name, "4096TiB");

    EXPECT_EQ(RuntimeOptions::from_environment().status().code(), Code::kInvalidArgument);
  }
}

}  // namespace
}  // namespace spillway
