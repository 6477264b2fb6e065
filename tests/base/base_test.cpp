// SPDX-License-Identifier: Apache-2.0
#include "allocator/base/bytes.h"
#include "allocator/base/env.h"
#include "allocator/base/result.h"

#include <gtest/gtest.h>

#include <cstdlib>

namespace spillway {
namespace {

using namespace literals;

TEST(BytesTest, RoundsUpAndDownToAUnit) {
  EXPECT_EQ((513_B).rounded_up(512_B), 1024_B);
  EXPECT_EQ((512_B).rounded_up(512_B), 512_B);
  EXPECT_EQ((1023_B).rounded_down(512_B), 512_B);
}

TEST(BytesTest, GoingBelowZeroIsABug) {
  EXPECT_DEATH(static_cast<void>(1_B - 2_B), "check failed");
}

TEST(BytesTest, GoingPastSixtyFourBitsIsABug) {
  EXPECT_DEATH(static_cast<void>(Bytes{~0ULL} + 1_B), "check failed");
}

TEST(BytesTest, AMessageShowsTheLargestUnitThatIsNotTooLarge) {
  EXPECT_EQ(readable(Bytes{}), "0 bytes");
  EXPECT_EQ(readable(1023_B), "1023 bytes");
  EXPECT_EQ(readable(1536_KiB), "1.50 MiB");
  EXPECT_EQ(readable(Bytes{~0ULL}), "16777216.00 TiB");
}

TEST(BytesTest, ASettingIsRoundedUpByAtMostAFiftieth) {
  EXPECT_EQ(setting_of(Bytes{}), "0GiB");
  EXPECT_EQ(setting_of(1000_B), "1000B");
  EXPECT_EQ(setting_of(60_GiB + 1_B), "61GiB");
  EXPECT_EQ(setting_of(10_GiB + 1_B), "10241MiB");
  EXPECT_EQ(setting_of(Bytes{~0ULL}), "17179869184GiB");
}

TEST(EnvTest, SizesHaveBinaryUnits) {
  EXPECT_EQ(env::parse_size("1.5GiB", "X").value(), 1536_MiB);
  EXPECT_EQ(env::parse_size("512", "X").value(), 512_B);
}

TEST(EnvTest, ASizeThatCannotBeReadNamesVariableValueAndWhatIsAllowed) {
  const auto result = env::parse_size("8GB", "SPILLWAY_EMULATE_MEMORY");
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(result.status().code(), Code::kInvalidArgument);
  EXPECT_NE(result.status().detail().find("SPILLWAY_EMULATE_MEMORY=8GB"), std::string::npos);
  EXPECT_NE(result.status().detail().find("1.5GiB"), std::string::npos);
}

TEST(EnvTest, NegativeAndHugeSizesAreRefused) {
  EXPECT_FALSE(env::parse_size("-1", "X").ok());
  EXPECT_FALSE(env::parse_size("1e30", "X").ok());
  EXPECT_FALSE(env::parse_size("inf", "X").ok());
  EXPECT_FALSE(env::parse_size("0x10", "X").ok());
  EXPECT_FALSE(env::parse_size("1e9", "X").ok());
  EXPECT_FALSE(env::parse_size(".5GiB", "X").ok());
}

TEST(EnvTest, AnUnknownSettingIsNamed) {
  setenv("SPILLWAY_EMULATE_SHEDULE", "late", 1);
  const Status status = env::check_names();
  unsetenv("SPILLWAY_EMULATE_SHEDULE");
  EXPECT_EQ(status.code(), Code::kInvalidArgument);
  EXPECT_NE(status.detail().find("SPILLWAY_EMULATE_SHEDULE"), std::string::npos);
}

TEST(StatusTest, AnErrorSaysWhatAndWhere) {
  const Status status = Status::driver(2, "CUDA_ERROR_OUT_OF_MEMORY", "cuMemCreate", "heap.cpp", 7);
  EXPECT_EQ(status.driver_error(), 2);
  EXPECT_EQ(status.message(), "driver error: cuMemCreate: CUDA_ERROR_OUT_OF_MEMORY (heap.cpp:7)");
}

}  // namespace
}  // namespace spillway
