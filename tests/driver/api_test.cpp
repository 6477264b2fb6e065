// SPDX-License-Identifier: Apache-2.0
#include "allocator/driver/api.h"

#include "emulator/emulator.h"
#include "tests/driver/faulted_calls.h"

#include <gtest/gtest.h>

#include <unistd.h>

#include <cstdio>
#include <set>
#include <string>
#include <string_view>

namespace spillway::driver {
namespace {

void* without_mem_map(const char* name, int) {
  static int something = 0;
  return std::string_view(name) == "cuMemMap" ? nullptr : &something;
}

CUresult say_nothing(CUresult, const char**) {
  return CUDA_ERROR_INVALID_VALUE;
}

TEST(ApiTest, AMissingFunctionIsNamed) {
  const auto api = load(without_mem_map);

  ASSERT_FALSE(api.ok());
  EXPECT_EQ(api.status().code(), Code::kNoDriver);
  EXPECT_NE(api.status().detail().find("cuMemMap was not found"), std::string::npos);
}

TEST(ApiTest, AFunctionIsAskedForByNameAndVersion) {
  static int asked = 0;
  const auto api = load([](const char* name, int version) -> void* {
    if (std::string_view(name) == "cuMemGetInfo") asked = version;
    return &asked;
  });

  ASSERT_TRUE(api.ok());
  EXPECT_EQ(asked, 3020);
}

TEST(ApiTest, EveryFunctionIsMadeToFailSomewhere) {
  std::set<std::string_view> faulted;
  const auto add = [&](const auto& list) {
    faulted.insert(list.begin(), list.end());
  };
  add(kFaultedInHeap);
  add(kFaultedInHeapsLife);
  add(kFaultedInResidency);
  add(kFaultedInOpening);
  add(kFaultedByHand);
  add(kNotFaulted);
#define SPILLWAY_CU(name, version) \
  EXPECT_EQ(faulted.count("cu" #name), 1U) << "cu" #name << " is in no list of faulted_calls.h";
#include "allocator/driver/symbols.inc"
#undef SPILLWAY_CU
}

TEST(ApiDeathTest, ADriverThatCannotStartIsATypedError) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");  // a process that has not loaded it yet

  EXPECT_EXIT(
      {
        spillway_emulator_fault("cuInit:1=unknown");
        const auto table = api();
        const bool right = table.status().code() == Code::kDriver &&
                           table.status().detail() == "cuInit: CUDA_ERROR_UNKNOWN";
        std::fputs(table.status().message().c_str(), stderr);
        _exit(right ? 0 : 1);
      },
      testing::ExitedWithCode(0),
      "cuInit");
}

TEST(ApiTest, TheProcessHasOneTable) {
  const auto first = api();

  ASSERT_TRUE(first.ok()) << first.status().message();
  EXPECT_EQ(api().value(), first.value());
  EXPECT_TRUE(emulated());
}

TEST(ApiTest, AFailedCallStatesWhichAndHow) {
  const Api& table = *api().value();

  const Status status = SPILLWAY_CALL(table, DeviceGet, nullptr, 0);

  EXPECT_EQ(status.code(), Code::kDriver);
  EXPECT_EQ(status.driver_error(), static_cast<int>(CUDA_ERROR_INVALID_VALUE));
  EXPECT_EQ(status.detail(), "cuDeviceGet: CUDA_ERROR_INVALID_VALUE");
  EXPECT_NE(status.message().find("api_test.cpp:"), std::string::npos);
}

TEST(ApiTest, OutOfMemoryHasACodeOfItsOwn) {
  const Status status = to_status(*api().value(), CUDA_ERROR_OUT_OF_MEMORY, "cuMemCreate", "x", 1);

  EXPECT_EQ(status.code(), Code::kOutOfDeviceMemory);
  EXPECT_EQ(status.detail(), "cuMemCreate: CUDA_ERROR_OUT_OF_MEMORY");
}

TEST(ApiTest, AnErrorWithoutANameIsStillAnError) {
  Api table = *api().value();
  table.GetErrorName = say_nothing;

  const Status status = to_status(table, CUDA_ERROR_NOT_PERMITTED, "cuMemMap", "x", 1);

  EXPECT_EQ(status.driver_error(), static_cast<int>(CUDA_ERROR_NOT_PERMITTED));
  EXPECT_EQ(status.detail(), "cuMemMap: unknown CUresult");
}

}  // namespace
}  // namespace spillway::driver
