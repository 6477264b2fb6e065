// SPDX-License-Identifier: Apache-2.0
// Streams that end before the memory that they used is released, and handles that are no streams.
#include "allocator/runtime/runtime.h"

#include <gtest/gtest.h>

#include <spillway/spillway.h>

#include <optional>
#include <string>
#include <vector>

namespace spillway {
namespace {

constexpr std::uint64_t kStreamBytes = 4U << 20U;

class StreamsTest : public testing::Test {
 protected:
  void SetUp() override {
    const auto made = Runtime::instance().device(DeviceId{0});
    ASSERT_TRUE(made.ok()) << made.status().message();
    device_ = made.value();
    current_.emplace(api(), device_->device().context);
    device_->heap().trim_sync();
  }

  const driver::Api& api() { return *device_->device().api; }

  CUstream make_stream() {
    CUstream stream = nullptr;
    EXPECT_EQ(api().StreamCreateWithPriority(&stream, CU_STREAM_NON_BLOCKING, 0), CUDA_SUCCESS);
    return stream;
  }

  static void* allocate(CUstream stream) {
    void* block = nullptr;
    EXPECT_EQ(spillway_allocate(0, kStreamBytes, stream, &block), SPILLWAY_OK)
        << spillway_last_error();
    return block;
  }

  /// A handle that was a stream's.
  CUstream destroyed() {
    CUstream stream = make_stream();
    EXPECT_EQ(api().StreamDestroy(stream), CUDA_SUCCESS);
    return stream;
  }

  void read_into(std::vector<char>& seen, void* from, CUstream stream) {
    ASSERT_EQ(
        api().MemcpyDtoHAsync(seen.data(), driver::DevicePtr(from).address(), seen.size(), stream),
        CUDA_SUCCESS);
  }

  void write(void* to, const std::vector<char>& bytes, CUstream stream) {
    ASSERT_EQ(
        api().MemcpyHtoDAsync(driver::DevicePtr(to).address(), bytes.data(), bytes.size(), stream),
        CUDA_SUCCESS);
  }

  DeviceRuntime* device_ = nullptr;
  std::optional<driver::CurrentDevice> current_;
};

TEST_F(StreamsTest, AUseByWhatIsNoStreamIsRefused) {
  void* const block = allocate(make_stream());

  EXPECT_EQ(spillway_use(block, destroyed()), SPILLWAY_INVALID_ARGUMENT);
  EXPECT_NE(std::string(spillway_last_error()).find("stream of device 0"), std::string::npos);
  EXPECT_EQ(spillway_release(block), SPILLWAY_OK);
}

TEST_F(StreamsTest, AUseByAStreamThatWasKnownAndHasGoneIsRefused) {
  CUstream side = make_stream();
  void* const first = allocate(make_stream());
  ASSERT_EQ(spillway_use(first, side), SPILLWAY_OK);
  ASSERT_EQ(spillway_release(first), SPILLWAY_OK);
  ASSERT_EQ(api().StreamDestroy(side), CUDA_SUCCESS);
  void* const block = allocate(make_stream());

  EXPECT_EQ(spillway_use(block, side), SPILLWAY_INVALID_ARGUMENT);
  EXPECT_EQ(spillway_release(block), SPILLWAY_OK);
}

TEST_F(StreamsTest, MemoryForWhatIsNoStreamIsRefused) {
  void* block = nullptr;

  EXPECT_EQ(spillway_allocate(0, kStreamBytes, destroyed(), &block), SPILLWAY_INVALID_ARGUMENT);
  EXPECT_EQ(block, nullptr);
}

TEST_F(StreamsTest, WhatADestroyedUserReadsIsNotWrittenBeforeItHasBeenRead) {
  CUstream main = make_stream();
  CUstream side = make_stream();
  void* const block = allocate(main);
  const std::vector<char> old(kStreamBytes, 'o');
  const std::vector<char> young(kStreamBytes, 'y');
  std::vector<char> seen(kStreamBytes);
  // A copy to memory that is not pinned would be over when the call returns.
  ASSERT_EQ(api().MemHostRegister(seen.data(), seen.size(), 0), CUDA_SUCCESS);
  write(block, old, main);
  ASSERT_EQ(api().StreamSynchronize(main), CUDA_SUCCESS);
  read_into(seen, block, side);
  ASSERT_EQ(spillway_use(block, side), SPILLWAY_OK);
  ASSERT_EQ(api().StreamDestroy(side), CUDA_SUCCESS);
  ASSERT_EQ(spillway_release(block), SPILLWAY_OK);
  const std::uint64_t lost = driver::counters().lost_streams;

  void* const again = allocate(main);
  write(again, young, main);
  ASSERT_EQ(api().StreamSynchronize(main), CUDA_SUCCESS);

  EXPECT_EQ(api().CtxSynchronize(), CUDA_SUCCESS);

  EXPECT_EQ(again, block);
  EXPECT_EQ(seen, old);
  EXPECT_EQ(driver::counters().lost_streams, lost + 1);
  EXPECT_EQ(spillway_release(again), SPILLWAY_OK);
  EXPECT_EQ(api().MemHostUnregister(seen.data()), CUDA_SUCCESS);
}

TEST_F(StreamsTest, MemoryThatADestroyedStreamLeftGoesBackToTheDriver) {
  CUstream main = make_stream();
  CUstream side = make_stream();
  void* const block = allocate(main);
  ASSERT_EQ(spillway_use(block, side), SPILLWAY_OK);
  ASSERT_EQ(spillway_release(block), SPILLWAY_OK);
  ASSERT_EQ(api().StreamDestroy(main), CUDA_SUCCESS);
  ASSERT_EQ(api().StreamDestroy(side), CUDA_SUCCESS);

  EXPECT_EQ(device_->heap().trim_sync().count(), kStreamBytes);
}

TEST_F(StreamsTest, MemoryOfADestroyedStreamCanBePausedAndIsFetched) {
  CUstream main = make_stream();
  ASSERT_EQ(spillway_tag_push("left"), SPILLWAY_OK);
  void* const block = allocate(main);
  ASSERT_EQ(spillway_tag_pop(), SPILLWAY_OK);
  const std::vector<char> bytes(kStreamBytes, 'b');
  write(block, bytes, main);
  ASSERT_EQ(api().StreamDestroy(main), CUDA_SUCCESS);

  ASSERT_EQ(spillway_pause("left", 0, nullptr), SPILLWAY_OK) << spillway_last_error();
  ASSERT_EQ(spillway_resume("left"), SPILLWAY_OK) << spillway_last_error();

  std::vector<char> seen(kStreamBytes);
  CUstream reader = make_stream();
  read_into(seen, block, reader);
  ASSERT_EQ(api().StreamSynchronize(reader), CUDA_SUCCESS);
  EXPECT_EQ(seen, bytes);
  EXPECT_EQ(spillway_release(block), SPILLWAY_OK);
}

}  // namespace
}  // namespace spillway
