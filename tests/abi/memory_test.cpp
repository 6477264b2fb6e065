// SPDX-License-Identifier: Apache-2.0
#include "allocator/runtime/runtime.h"

#include <gtest/gtest.h>

#include <spillway/spillway.h>

#include <limits>
#include <string>
#include <thread>
#include <vector>

namespace spillway {
namespace {

void* allocate(std::uint64_t size) {
  void* block = nullptr;
  EXPECT_EQ(spillway_allocate(0, size, nullptr, &block), SPILLWAY_OK) << spillway_last_error();
  return block;
}

TEST(MemoryTest, ABlockIsGivenOnceAndTakenBackOnce) {
  void* const block = allocate(1000);

  EXPECT_NE(block, nullptr);
  EXPECT_EQ(spillway_release(block), SPILLWAY_OK);
  EXPECT_EQ(spillway_release(block), SPILLWAY_INVALID_ARGUMENT);
  EXPECT_NE(std::string(spillway_last_error()).find("released before"), std::string::npos);
}

TEST(MemoryTest, NoBytesGiveANullPointerThatMayBeReleased) {
  void* block = &block;

  EXPECT_EQ(spillway_allocate(0, 0, nullptr, &block), SPILLWAY_OK);

  EXPECT_EQ(block, nullptr);
  EXPECT_EQ(spillway_release(block), SPILLWAY_OK);
}

TEST(MemoryTest, AForeignPointerIsRefused) {
  int mine = 0;

  EXPECT_EQ(spillway_release(&mine), SPILLWAY_INVALID_ARGUMENT);
  EXPECT_EQ(spillway_use(&mine, nullptr), SPILLWAY_INVALID_ARGUMENT);
}

TEST(MemoryTest, TheMiddleOfABlockIsRefusedAndTheBlockLives) {
  void* const block = allocate(4096);

  EXPECT_EQ(spillway_release(static_cast<char*>(block) + 512), SPILLWAY_INVALID_ARGUMENT);

  EXPECT_NE(std::string(spillway_last_error()).find("inside a block"), std::string::npos);
  EXPECT_EQ(spillway_release(block), SPILLWAY_OK);
}

TEST(MemoryTest, ASizeThatNoDeviceHasIsOutOfMemoryAndLeavesTheAddressAsItWas) {
  void* block = &block;
  for (const std::uint64_t size :
       {std::numeric_limits<std::uint64_t>::max(), std::uint64_t{1} << 40U}) {
    EXPECT_EQ(spillway_allocate(0, size, nullptr, &block), SPILLWAY_OUT_OF_DEVICE_MEMORY);
  }
  EXPECT_EQ(block, &block);
  EXPECT_NE(std::string(spillway_last_error()).find("allocated by tag"), std::string::npos);
}

TEST(MemoryTest, ANullPlaceForTheAddressIsRefused) {
  EXPECT_EQ(spillway_allocate(0, 512, nullptr, nullptr), SPILLWAY_INVALID_ARGUMENT);
}

TEST(MemoryTest, ADeviceThatIsNotThereIsRefusedWithTheNumberOfThose) {
  void* block = nullptr;

  EXPECT_EQ(spillway_allocate(99, 512, nullptr, &block), SPILLWAY_INVALID_ARGUMENT);
  EXPECT_NE(std::string(spillway_last_error()).find("one of the 1 devices"), std::string::npos)
      << spillway_last_error();
}

TEST(MemoryTest, OfTwoThreadsThatGiveABlockBackOneIsRefused) {
  for (int round = 0; round < 200; ++round) {
    void* const block = allocate(512);
    int first = -1;
    std::thread other([&] { first = spillway_release(block); });
    const int second = spillway_release(block);
    other.join();

    EXPECT_EQ(first + second, SPILLWAY_OK + SPILLWAY_INVALID_ARGUMENT);
  }
}

TEST(MemoryTest, AUseByAnotherStreamIsWaitedForBeforeTheMemoryIsWrittenAgain) {
  DeviceRuntime& device = *Runtime::instance().device(DeviceId{0}).value();
  const driver::Api& api = *device.device().api;
  const driver::CurrentDevice current(api, device.device().context);
  CUstream side = nullptr;
  ASSERT_EQ(api.StreamCreateWithPriority(&side, CU_STREAM_NON_BLOCKING, 0), CUDA_SUCCESS);
  CUstream main = nullptr;
  ASSERT_EQ(api.StreamCreateWithPriority(&main, CU_STREAM_NON_BLOCKING, 0), CUDA_SUCCESS);
  void* block = nullptr;
  ASSERT_EQ(spillway_allocate(0, 1U << 20U, main, &block), SPILLWAY_OK);
  const std::vector<char> old(1U << 20U, 'o');
  const std::vector<char> young(1U << 20U, 'y');
  std::vector<char> seen(1U << 20U);
  const CUdeviceptr at = driver::DevicePtr(block).address();
  api.MemcpyHtoDAsync(at, old.data(), old.size(), main);
  api.StreamSynchronize(main);
  // A copy to memory that is not pinned would be over when the call returns.
  ASSERT_EQ(api.MemHostRegister(seen.data(), seen.size(), 0), CUDA_SUCCESS);
  api.MemcpyDtoHAsync(seen.data(), at, seen.size(), side);

  ASSERT_EQ(spillway_use(block, side), SPILLWAY_OK);
  ASSERT_EQ(spillway_release(block), SPILLWAY_OK);
  void* again = nullptr;
  ASSERT_EQ(spillway_allocate(0, 1U << 20U, main, &again), SPILLWAY_OK);
  api.MemcpyHtoDAsync(driver::DevicePtr(again).address(), young.data(), young.size(), main);
  api.StreamSynchronize(main);
  api.StreamSynchronize(side);

  EXPECT_EQ(again, block);
  EXPECT_EQ(seen, old);
  EXPECT_EQ(spillway_release(again), SPILLWAY_OK);
  EXPECT_EQ(api.MemHostUnregister(seen.data()), CUDA_SUCCESS);
  // The streams stay: the heap keeps a timeline for each.
}

}  // namespace
}  // namespace spillway
