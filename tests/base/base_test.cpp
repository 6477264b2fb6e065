// SPDX-License-Identifier: Apache-2.0
#include "allocator/base/bytes.h"
#include "allocator/base/result.h"

#include <gtest/gtest.h>

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

TEST(StatusTest, AnErrorStatesWhatAndWhere) {
  const Status status = Status::driver(2, "CUDA_ERROR_OUT_OF_MEMORY", "cuMemCreate", "heap.cpp", 7);
  EXPECT_EQ(status.driver_error(), 2);
  EXPECT_EQ(status.message(), "driver error: cuMemCreate: CUDA_ERROR_OUT_OF_MEMORY (heap.cpp:7)");
}

}  // namespace
}  // namespace spillway
