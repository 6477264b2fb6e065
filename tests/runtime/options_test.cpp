// SPDX-License-Identifier: Apache-2.0
#include "allocator/runtime/device_runtime.h"

#include <gtest/gtest.h>

#include <cstdlib>

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

TEST(RuntimeOptionsTest, ALimitThatCannotBeReadNamesVariableAndValue) {
  const Setting setting("SPILLWAY_PINNED_LIMIT", "lots");

  const auto options = RuntimeOptions::from_environment();

  EXPECT_EQ(options.status().code(), Code::kInvalidArgument);
  EXPECT_NE(options.status().detail().find("SPILLWAY_PINNED_LIMIT=lots"), std::string::npos);
}

TEST(RuntimeOptionsTest, AnUnknownSettingIsAnError) {
  const Setting setting("SPILLWAY_PINED_LIMIT", "1GiB");

  EXPECT_EQ(RuntimeOptions::from_environment().status().code(), Code::kInvalidArgument);
}

}  // namespace
}  // namespace spillway
