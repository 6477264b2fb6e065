// SPDX-License-Identifier: Apache-2.0
#include "allocator/transfer/copy_engine.h"

#include "emulator/emulator.h"
#include "tests/heap/heap_fixture.h"
#include "tests/support/value_of.h"

#include <algorithm>
#include <cstring>
#include <thread>
#include <utility>

namespace spillway {
namespace {

constexpr Bytes kSize = 1_MiB;

class CopyEngineTest : public HeapTest {
 protected:
  void SetUp() override {
    HeapTest::SetUp();
    arena_ = std::make_unique<HostArena>(device_, Bytes{});
    copies_ = CopyEngine::create(device_).value();
    slot_ = arena_->take(kSize).value();
    block_ = allocate(kSize);
  }

  void TearDown() override {
    for (const driver::Stream stream : {main_, copies_->out_stream(), copies_->in_stream()}) {
      table_.StreamSynchronize(stream.handle());
    }
    slot_ = {};
    arena_.reset();
    for (const driver::DevicePtr at : std::exchange(allocated_, {}))
      heap_->free(at);
    heap_->trim_sync();  // it holds no fence of the engine's after this
    copies_.reset();
    HeapTest::TearDown();
  }

  void write(driver::DevicePtr to, int value) {
    const std::vector<std::byte> bytes(kSize.count(), std::byte(value));
    EXPECT_EQ(table_.MemcpyHtoDAsync(to.address(), bytes.data(), bytes.size(), main_.handle()),
              CUDA_SUCCESS);
    EXPECT_EQ(table_.StreamSynchronize(main_.handle()), CUDA_SUCCESS);
  }

  int read(driver::DevicePtr from) {
    std::vector<std::byte> bytes(kSize.count());
    EXPECT_EQ(table_.MemcpyDtoHAsync(bytes.data(), from.address(), bytes.size(), main_.handle()),
              CUDA_SUCCESS);
    EXPECT_EQ(table_.StreamSynchronize(main_.handle()), CUDA_SUCCESS);
    return value_of(bytes);
  }

  std::unique_ptr<HostArena> arena_;
  std::unique_ptr<CopyEngine> copies_;
  HostSlot slot_;
  driver::DevicePtr block_;
};

TEST_F(CopyEngineTest, WhatGoesOutIsFetched) {
  write(block_, 42);
  const driver::Fence written = copies_->to_host({block_, slot_}, main_).value();
  const driver::DevicePtr other = allocate(kSize);

  const driver::Fence fetched = copies_->to_device({slot_.bytes(), written, other}, main_).value();
  EXPECT_EQ(copies_->queued_in(), slot_.bytes().size);
  ASSERT_TRUE(driver::Timeline::wait(main_, fetched).ok());

  EXPECT_EQ(read(other), 42);
}

TEST_F(CopyEngineTest, CopiesRunOnStreamsOfTheirOwn) {
  EXPECT_FALSE(copies_->out_stream() == copies_->in_stream());
  EXPECT_FALSE(copies_->out_stream() == main_);
}

TEST_F(CopyEngineTest, TheSlotsFencesAreReplacedByThatOfTheCopy) {
  slot_.fences = {stuck_fence()};

  const auto written = copies_->to_host({block_, slot_}, main_);

  ASSERT_TRUE(written.ok());
  EXPECT_EQ(slot_.fences, (driver::FenceSet{written.value()}));
}

TEST_F(CopyEngineTest, AWaitThatAnEarlierOneImpliesIsNotAskedForAgain) {
  const driver::DevicePtr other = allocate(kSize);
  HostSlot second = arena_->take(kSize).value();
  write(block_, 1);
  write(other, 2);
  const auto waits_of = [&](auto&& copy) {
    const std::uint64_t before = spillway_emulator_count("cuStreamWaitEvent");
    EXPECT_TRUE(copy().ok());
    return spillway_emulator_count("cuStreamWaitEvent") - before;
  };
  const driver::Fence first_out = copies_->to_host({block_, slot_}, main_).value();
  const driver::Fence second_out = copies_->to_host({other, second}, main_).value();

  // Each waits for its consumer, too.
  EXPECT_EQ(waits_of([&] {
              return copies_->to_device({second.bytes(), second_out, block_}, main_);
            }),
            2U);
  EXPECT_EQ(waits_of([&] {
              return copies_->to_device({slot_.bytes(), first_out, other}, main_);
            }),
            1U);

  const driver::Fence third_out = copies_->to_host({other, slot_}, main_).value();
  EXPECT_EQ(waits_of([&] {
              return copies_->to_device({slot_.bytes(), third_out, other}, main_);
            }),
            2U);
  ASSERT_EQ(table_.StreamSynchronize(copies_->in_stream().handle()), CUDA_SUCCESS);
  EXPECT_EQ(read(block_), 2);
}

TEST_F(CopyEngineTest, ACopyOutThatCannotWaitForItsProducerIsAnErrorAndTheSlotStaysAsItWas) {
  const driver::Fence before = stuck_fence();
  slot_.fences = {before};
  const Fault<&driver::Api::StreamWaitEvent> fault(table_, 1, CUDA_ERROR_INVALID_VALUE);

  EXPECT_EQ(copies_->to_host({block_, slot_}, main_).status().code(), Code::kDriver);

  EXPECT_EQ(slot_.fences, (driver::FenceSet{before}));
}

TEST_F(CopyEngineTest, ACopyOutThatCannotWaitForItsSlotIsAnErrorAndTheSlotStaysAsItWas) {
  const driver::Fence before = stuck_fence();
  slot_.fences = {before};
  const Fault<&driver::Api::StreamWaitEvent> fault(stuck_table_, 1, CUDA_ERROR_INVALID_VALUE);

  EXPECT_EQ(copies_->to_host({block_, slot_}, main_).status().code(), Code::kDriver);

  EXPECT_EQ(slot_.fences, (driver::FenceSet{before}));
}

TEST_F(CopyEngineTest, ACopyOutThatCannotBeQueuedIsAnErrorAndTheSlotStaysAsItWas) {
  const driver::Fence before = stuck_fence();
  slot_.fences = {before};
  const Fault<&driver::Api::MemcpyDtoHAsync> fault(table_, 1, CUDA_ERROR_INVALID_VALUE);

  EXPECT_EQ(copies_->to_host({block_, slot_}, main_).status().code(), Code::kDriver);

  EXPECT_EQ(slot_.fences, (driver::FenceSet{before}));
}

TEST_F(CopyEngineTest, ACopyThatCannotBeMarkedHasPassedWhenTheErrorIsReported) {
  write(block_, 9);
  std::memset(slot_.data(), 0, kSize.count());
  const std::uint64_t syncs = driver::counters().host_syncs;
  const std::uint64_t waits = spillway_emulator_count("cuStreamSynchronize");
  const Fault<&driver::Api::EventRecord> fault(table_, 2, CUDA_ERROR_INVALID_VALUE);

  EXPECT_EQ(copies_->to_host({block_, slot_}, main_).status().code(), Code::kDriver);

  EXPECT_EQ(slot_.data()[kSize.count() - 1], std::byte{9});
  EXPECT_EQ(spillway_emulator_count("cuStreamSynchronize"), waits + 1);
  EXPECT_EQ(driver::counters().host_syncs, syncs + 1);
}

TEST_F(CopyEngineTest, ACopyInThatFailsIsAnErrorAndTheNextOneWorks) {
  write(block_, 5);
  const driver::Fence written = copies_->to_host({block_, slot_}, main_).value();
  const driver::DevicePtr other = allocate(kSize);
  const Fault<&driver::Api::MemcpyHtoDAsync> fault(table_, 1, CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(copies_->to_device({slot_.bytes(), written, other}, main_).status().code(),
            Code::kDriver);

  const auto fetched = copies_->to_device({slot_.bytes(), written, other}, main_);

  ASSERT_TRUE(fetched.ok());
  ASSERT_TRUE(driver::Timeline::wait(main_, fetched.value()).ok());
  EXPECT_EQ(read(other), 5);
}

TEST_F(CopyEngineTest, AnEngineThatCannotHaveBothStreamsGivesTheFirstBack) {
  const std::uint64_t destroyed = spillway_emulator_count("cuStreamDestroy");
  const Fault<&driver::Api::StreamCreateWithPriority> fault(table_, 2, CUDA_ERROR_INVALID_VALUE);

  EXPECT_FALSE(CopyEngine::create(device_).ok());

  EXPECT_EQ(spillway_emulator_count("cuStreamDestroy"), destroyed + 1);
}

TEST_F(CopyEngineTest, EventsAreUsedAgain) {
  const auto round = [&] {
    for (int each = 0; each < 200; ++each) {
      const driver::Fence written = copies_->to_host({block_, slot_}, main_).value();
      const driver::Fence read =
          copies_->to_device({slot_.bytes(), written, block_}, main_).value();
      ASSERT_TRUE(driver::Timeline::wait(main_, read).ok());
    }
  };
  round();
  const std::uint64_t created = spillway_emulator_count("cuEventCreate");

  round();

  EXPECT_EQ(spillway_emulator_count("cuEventCreate"), created);
}

TEST_F(CopyEngineTest, ThreadsMayCopyAtTheSameTime) {
  const std::uint64_t reports = spillway_emulator_count("unordered");
  std::vector<std::thread> threads;
  for (int each = 0; each < 4; ++each) {
    const driver::Stream stream = make_stream();
    const driver::DevicePtr block = allocate(64_KiB, stream);
    threads.emplace_back([this, stream, block] {
      for (int round = 0; round < 100; ++round) {
        HostSlot slot = arena_->take(64_KiB).value();
        const driver::Fence written = copies_->to_host({block, slot}, stream).value();
        const driver::Fence read =
            copies_->to_device({slot.bytes(), written, block}, stream).value();
        ASSERT_TRUE(driver::Timeline::wait(stream, read).ok());
        slot.fences.add(read);
      }
    });
  }
  for (std::thread& thread : threads)
    thread.join();

  for (const CUstream stream : streams_)
    table_.StreamSynchronize(stream);
#if defined(__SANITIZE_THREAD__)
  // ThreadSanitizer replaces the functions by which the order checker observes threads, so it
  // misses that one thread may have notified another that a copy has passed.
  static_cast<void>(reports);
#else
  EXPECT_EQ(spillway_emulator_count("unordered"), reports);
#endif
}

}  // namespace
}  // namespace spillway
