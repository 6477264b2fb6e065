// SPDX-License-Identifier: Apache-2.0
#include "hooks/kernel_names/cupti_api.h"

#include <cupti.h>

#include <gtest/gtest.h>

#include <unistd.h>

#include <string>
#include <string_view>
#include <vector>

namespace spillway::hooks {
namespace {

int something = 0;

TEST(CuptiApiTest, AMissingFunctionIsNamed) {
  const auto api = CuptiApi::from(
      [](void*, const char* symbol) -> void* {
        return std::string_view(symbol) == "cuptiEnableCallback" ? nullptr : &something;
      },
      nullptr);

  ASSERT_FALSE(api.ok());
  EXPECT_EQ(api.status().code(), Code::kNoDriver);
  EXPECT_NE(api.status().detail().find("cuptiEnableCallback is missing"), std::string::npos);
}

TEST(CuptiApiTest, WithoutTheLibraryTheErrorStatesWhatToDo) {
  const auto api = CuptiApi::open({"/nowhere/libcupti.so.13"});

  ASSERT_FALSE(api.ok());
  EXPECT_EQ(api.status().code(), Code::kNoDriver);
  EXPECT_NE(api.status().detail().find("/nowhere/libcupti.so.13"), std::string::npos);
  EXPECT_NE(api.status().detail().find("pip install nvidia-cuda-cupti"), std::string::npos);
}

TEST(CuptiApiTest, TheLoadersLibraryComesBeforeThoseOfFolders) {
  const std::vector<std::string> files{
      "libcupti.so.13", "/one/libcupti.so.13", "/two/libcupti.so.13"};

  EXPECT_EQ(CuptiApi::files({"/one", "/two"}), files);
}

TEST(CuptiApiTest, NothingOfTheActivityApiIsAskedFor) {
#define SPILLWAY_CUPTI(member, symbol) \
  EXPECT_EQ(std::string_view(#symbol).find("Activity"), std::string_view::npos);
#include "hooks/kernel_names/cupti_symbols.inc"
#undef SPILLWAY_CUPTI
}

/// The library of PyTorch's wheels, where they are installed. Nothing is subscribed.
class WheelsCuptiTest : public testing::Test {
 protected:
  void SetUp() override {
    if (access(kLibrary, R_OK) != 0) GTEST_SKIP() << kLibrary << " is not there";
  }

  static constexpr const char* kLibrary = SPILLWAY_CUPTI_FOLDER "/libcupti.so.13";
};

TEST_F(WheelsCuptiTest, ItHasEveryFunction) {
  const auto api = CuptiApi::open({"/nowhere/libcupti.so.13", kLibrary});

  ASSERT_TRUE(api.ok()) << api.status().message();
  EXPECT_EQ(api.value().text(CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED),
            "CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED");
}

}  // namespace
}  // namespace spillway::hooks
