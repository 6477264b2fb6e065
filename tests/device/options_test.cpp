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

TEST(RuntimeOptionsTest, WithoutSettingsThereIsNoPinnedLimit) {
  EXPECT_EQ(RuntimeOptions::from_environment().value().pinned_limit, 0_B);
}

TEST(RuntimeOptionsTest, ThePinnedLimitIsRead) {
  const Setting setting("SPILLWAY_PINNED_LIMIT", "1.5GiB");

  EXPECT_EQ(RuntimeOptions::from_environment().value().pinned_limit, 1536_MiB);
}

TEST(RuntimeOptionsTest, StepsAreReplayedOnlyWhereAskedFor) {
  EXPECT_FALSE(RuntimeOptions::from_environment().value().plan_replay);
  const Setting setting("SPILLWAY_PLAN_REPLAY", "1");
  EXPECT_TRUE(RuntimeOptions::from_environment().value().plan_replay);
}

TEST(RuntimeOptionsTest, ALimitThatCannotBeReadNamesVariableAndValue) {
  const Setting setting("SPILLWAY_PINNED_LIMIT", "lots");

  const auto options = RuntimeOptions::from_environment();

  EXPECT_EQ(options.status().code(), Code::kInvalidArgument);
  EXPECT_NE(options.status().detail().find("SPILLWAY_PINNED_LIMIT=lots"), std::string::npos);
}

TEST(RuntimeOptionsTest, TheLimitOfTheNodeIsRead) {
  const Setting setting("SPILLWAY_NODE_PINNED_LIMIT", "64MiB");

  EXPECT_EQ(RuntimeOptions::from_environment().value().node_pinned_limit, 64_MiB);
}

TEST(RuntimeOptionsTest, ALimitOfNothingIsAnErrorThatSaysWhatIsAllowed) {
  for (const char* const name : {"SPILLWAY_PINNED_LIMIT", "SPILLWAY_NODE_PINNED_LIMIT"}) {
    const Setting setting(name, "0");

    const auto options = RuntimeOptions::from_environment();

    EXPECT_EQ(options.status().code(), Code::kInvalidArgument);
    EXPECT_NE(options.status().detail().find(std::string(name) + "=0: expected a size above 0"),
              std::string::npos);
  }
}

TEST(RuntimeOptionsTest, ALimitAboveWhatTheMachineHasIsAnError) {
  for (const char* const name : {"SPILLWAY_PINNED_LIMIT", "SPILLWAY_NODE_PINNED_LIMIT"}) {
    const Setting setting(name, "4096TiB");

    EXPECT_EQ(RuntimeOptions::from_environment().status().code(), Code::kInvalidArgument);
  }
}

TEST(RuntimeOptionsTest, AnUnknownSettingIsAnError) {
  const Setting setting("SPILLWAY_PINED_LIMIT", "1GiB");

  EXPECT_EQ(RuntimeOptions::from_environment().status().code(), Code::kInvalidArgument);
}

}  // namespace
}  // namespace spillway
