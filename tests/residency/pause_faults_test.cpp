// SPDX-License-Identifier: Apache-2.0
#include "tests/residency/pause_fixture.h"

#include <string>

namespace spillway {
namespace {

/// Every call of one driver function in the course of a move fails in turn.
class EveryCall : public PauseManagerTest, public testing::WithParamInterface<const char*> {
 protected:
  /// Two blocks of two streams; one also used by the other stream.
  void make_blocks() {
    first_ = filled(kTag, 1, main_);
    second_ = filled(kTag, 2, side_);
    ASSERT_TRUE(heap_->record_use(first_, side_));
  }

  /// Makes `move` with the n-th call failing; false where there were fewer calls.
  template <typename Move>
  bool with_fault(std::uint64_t nth, Move move) {
    const std::string spec = std::string(GetParam()) + ":" + std::to_string(nth) + "=1";
    EXPECT_EQ(spillway_emulator_fault(spec.c_str()), nullptr);
    const std::uint64_t before = spillway_emulator_count(GetParam());
    move();
    const std::uint64_t calls = spillway_emulator_count(GetParam()) - before;
    spillway_emulator_fault(nullptr);
    EXPECT_EQ(heap_->view().check(), "");
    return calls >= nth;
  }

  void expect_contents() {
    EXPECT_EQ(read(first_, main_), 1);
    EXPECT_EQ(read(second_, side_), 2);
  }

  void expect_all_here() {
    EXPECT_EQ(pauses_->stats().blocks, 0U);
    EXPECT_EQ(pauses_->stats().on_host, 0_B);
    EXPECT_EQ(offloaded_.load(), 0U);
    synchronize();
    EXPECT_EQ(arena_->stats().in_slots, 0_B);
    expect_contents();
  }

  driver::DevicePtr first_;
  driver::DevicePtr second_;
};

TEST_P(EveryCall, OfAPauseFailsAndNothingIsLost) {
  make_blocks();
  int failed = 0;
  for (std::uint64_t nth = 1;; ++nth) {
    Status status;
    const bool hit = with_fault(nth, [&] { status = pause(kTag); });
    if (status.ok()) {
      EXPECT_EQ(pauses_->stats().blocks, 2U);
      ASSERT_TRUE(resume(kTag).ok());
    } else {
      ++failed;
      EXPECT_EQ(
          status.code(),
          std::string(GetParam()) == "cuMemHostRegister" ? Code::kOutOfHostMemory : Code::kDriver)
          << status.message();
    }
    expect_all_here();
    // Host memory is pinned again, so that its calls are part of each round.
    arena_->reset_peak();
    arena_->trim_sync();
    if (!hit) break;
    ASSERT_LT(nth, 200U);
  }
  RecordProperty("failed", failed);
}

TEST_P(EveryCall, OfAResumeFailsAndNothingIsLost) {
  make_blocks();
  for (std::uint64_t nth = 1;; ++nth) {
    ASSERT_TRUE(pause(kTag).ok());
    const Bytes before = reserved();
    Status status;
    const bool hit = with_fault(nth, [&] { status = resume(kTag); });
    if (!status.ok()) {
      EXPECT_EQ(status.code(), Code::kDriver) << status.message();
      EXPECT_EQ(pauses_->stats().blocks, 2U);
      EXPECT_EQ(pauses_->stats().on_host, kSize + kSize);
      EXPECT_EQ(reserved(), before);
      ASSERT_TRUE(resume(kTag).ok());
    }
    expect_all_here();
    if (!hit) break;
    ASSERT_LT(nth, 200U);
  }
}

INSTANTIATE_TEST_SUITE_P(Functions,
                         EveryCall,
                         testing::Values("cuMemcpyDtoHAsync",
                                         "cuMemcpyHtoDAsync",
                                         "cuStreamWaitEvent",
                                         "cuEventCreate",
                                         "cuEventRecord",
                                         "cuEventSynchronize",
                                         "cuMemHostRegister",
                                         "cuMemCreate",
                                         "cuMemMap",
                                         "cuMemSetAccess",
                                         "cuMemUnmap"));

TEST_F(PauseManagerTest, MemoryThatACopyOfAFailedPauseStillReadsIsNotUnmappedBeforeIt) {
  const driver::DevicePtr at = filled(kTag, 3, main_);
  ASSERT_EQ(spillway_emulator_fault("cuEventSynchronize:1=1"), nullptr);
  ASSERT_EQ(pause(kTag).code(), Code::kDriver);
  spillway_emulator_fault(nullptr);
  release(at);

  // The order checker, and the late copy itself, would reveal memory released too early.
  EXPECT_EQ(heap_->trim_sync(), kSize.rounded_up(2_MiB));
  synchronize();
}

TEST_F(PauseManagerTest, AnOutOfMemoryOfTheDriverIsTypedAndEverythingStaysPaused) {
  const driver::DevicePtr at = filled(kTag, 3, main_);
  ASSERT_TRUE(pause(kTag).ok());
  ASSERT_EQ(spillway_emulator_fault("cuMemCreate:1+=out_of_memory"), nullptr);

  EXPECT_EQ(resume(kTag).code(), Code::kOutOfDeviceMemory);

  spillway_emulator_fault(nullptr);
  EXPECT_EQ(pauses_->stats().blocks, 1U);
  ASSERT_TRUE(resume(kTag).ok());
  EXPECT_EQ(read(at, main_), 3);
}

}  // namespace
}  // namespace spillway
