// SPDX-License-Identifier: Apache-2.0
#include "tests/residency/pause_fixture.h"

#include <thread>

namespace spillway {
namespace {

TEST_F(PauseManagerTest, MemoryGoesAndTheContentsAreFetchedAtTheSameAddress) {
  const driver::DevicePtr at = filled(kTag, 11, main_);
  const Bytes before = reserved();

  ASSERT_TRUE(pause(kTag).ok());
  const Bytes paused = reserved();
  ASSERT_TRUE(resume(kTag).ok());

  EXPECT_EQ(before - paused, kSize.rounded_up(2_MiB));
  EXPECT_EQ(reserved(), before);
  EXPECT_EQ(read(at, main_), 11);
}

TEST_F(PauseManagerTest, AfterAResumeAnyStreamMayUseTheMemory) {
  const driver::DevicePtr at = filled(kTag, 12, main_);
  ASSERT_TRUE(pause(kTag).ok());
  ASSERT_TRUE(resume(kTag).ok());

  EXPECT_EQ(read(at, side_), 12);
}

TEST_F(PauseManagerTest, WhatAnotherStreamWritesBeforeThePauseIsKept) {
  const driver::DevicePtr at = filled(kTag, 13, main_);
  synchronize();
  fill(at, 14, side_);
  ASSERT_TRUE(heap_->record_use(at, side_));

  ASSERT_TRUE(pause(kTag).ok());
  ASSERT_TRUE(resume(kTag).ok());

  EXPECT_EQ(read(at, main_), 14);
}

TEST_F(PauseManagerTest, ACopyIntoTheBlockThatIsStillUnderWayIsKept) {
  const driver::DevicePtr at = allocate(kSize, main_, kTag);
  const driver::DevicePtr source = filled(kOther, 15, main_);
  Stash saved = stash(source, main_);
  fetch(saved, at, main_);

  ASSERT_TRUE(pause(kTag).ok());
  ASSERT_TRUE(resume(kTag).ok());

  EXPECT_EQ(read(at, main_), 15);
}

TEST_F(PauseManagerTest, OnlyWhatWasAskedForIsCopied) {
  filled(kTag, 1, main_);
  filled(kTag, 2, side_);
  filled(kOther, 3, main_);

  ASSERT_TRUE(pause(kTag).ok());

  const PauseStats stats = pauses_->stats();
  EXPECT_EQ(stats.copied_out, kSize + kSize);
  EXPECT_EQ(stats.paused, kSize + kSize);
  EXPECT_EQ(stats.blocks, 2U);
  EXPECT_EQ(offloaded_.load(), (kSize + kSize).count());
  ASSERT_TRUE(resume(kTag).ok());
  EXPECT_EQ(pauses_->stats().copied_in, kSize + kSize);
  EXPECT_EQ(pauses_->stats().blocks, 0U);
  EXPECT_EQ(offloaded_.load(), 0U);
  EXPECT_EQ(arena_->stats().in_slots, 0_B);
}

TEST_F(PauseManagerTest, DiscardedContentsAreNotCopied) {
  filled(kTag, 1, main_);

  ASSERT_TRUE(pause(kTag, Contents::kDiscarded).ok());

  EXPECT_EQ(pauses_->stats().copied_out, 0_B);
  EXPECT_EQ(pauses_->stats().on_host, 0_B);
  EXPECT_EQ(pauses_->stats().paused, kSize);
  EXPECT_EQ(arena_->stats().in_slots, 0_B);
  EXPECT_TRUE(resume(kTag).ok());
}

TEST_F(PauseManagerTest, DiscardingWaitsForTheWorkOnTheMemoryToo) {
  const driver::DevicePtr at = filled(kTag, 1, main_);
  synchronize();
  fill(at, 2, side_);
  ASSERT_TRUE(heap_->record_use(at, side_));

  // The order checker, and the late copy itself, would reveal memory released too early.
  ASSERT_TRUE(pause(kTag, Contents::kDiscarded).ok());

  EXPECT_EQ(table_.StreamSynchronize(side_.handle()), CUDA_SUCCESS);
  EXPECT_TRUE(resume(kTag).ok());
}

TEST_F(PauseManagerTest, ASecondPauseUsesTheHostMemoryOfTheFirst) {
  filled(kTag, 1, main_);
  ASSERT_TRUE(pause(kTag).ok());
  ASSERT_TRUE(resume(kTag).ok());
  const std::uint64_t registrations = driver::counters().registrations;

  ASSERT_TRUE(pause(kTag).ok());
  ASSERT_TRUE(resume(kTag).ok());

  EXPECT_EQ(driver::counters().registrations, registrations);
}

TEST_F(PauseManagerTest, WithoutHostMemoryNothingIsPaused) {
  arena_ = std::make_unique<HostArena>(device_, kSize + kSize);
  make_pauses();
  const driver::DevicePtr first = filled(kTag, 1, main_);
  filled(kTag, 2, main_);
  filled(kTag, 3, main_);
  const Bytes before = reserved();

  const Status status = pause(kTag);

  EXPECT_EQ(status.code(), Code::kOutOfHostMemory);
  EXPECT_EQ(reserved(), before);
  EXPECT_EQ(pauses_->stats().blocks, 0U);
  EXPECT_EQ(arena_->stats().in_slots, 0_B);
  EXPECT_EQ(read(first, main_), 1);
}

TEST_F(PauseManagerTest, WithoutDeviceMemoryEverythingStaysPaused) {
  const driver::DevicePtr first = filled(kTag, 1, main_);
  const driver::DevicePtr second = filled(kTag, 2, side_);
  const Bytes limit = reserved();
  ASSERT_TRUE(pause(kTag).ok());
  heap_->limits().set_limit(reserved() + kSize.rounded_up(2_MiB));

  const Status status = resume(kTag);

  EXPECT_EQ(status.code(), Code::kOutOfDeviceMemory);
  EXPECT_EQ(pauses_->stats().blocks, 2U);
  heap_->limits().set_limit(limit);
  ASSERT_TRUE(resume(kTag).ok());
  EXPECT_EQ(read(first, main_), 1);
  EXPECT_EQ(read(second, main_), 2);
}

TEST_F(PauseManagerTest, AResumeThatIsTakenBackCanBeRemade) {
  const driver::DevicePtr at = filled(kTag, 21, main_);
  ASSERT_TRUE(pause(kTag).ok());
  const Bytes paused = reserved();
  const std::array tags = {kTag};

  pauses_->cancel_resume(pauses_->begin_resume(tags).value());

  EXPECT_EQ(reserved(), paused);
  EXPECT_EQ(pauses_->stats().blocks, 1U);
  ASSERT_TRUE(resume(kTag).ok());
  EXPECT_EQ(read(at, main_), 21);
}

TEST_F(PauseManagerTest, APauseThatIsTakenBackLeavesTheMemoryToItsOwner) {
  const driver::DevicePtr at = filled(kTag, 22, main_);
  const Bytes before = reserved();
  const std::array tags = {kTag};

  pauses_->cancel_pause(pauses_->begin_pause(tags, Contents::kKept).value());

  EXPECT_EQ(reserved(), before);
  EXPECT_EQ(arena_->stats().in_slots, 0_B);
  EXPECT_EQ(read(at, main_), 22);
}

TEST_F(PauseManagerTest, MemoryFreedWhilePausedTakesItsCopyAlong) {
  const driver::DevicePtr at = filled(kTag, 1, main_);
  ASSERT_TRUE(pause(kTag).ok());

  release(at);

  EXPECT_EQ(pauses_->stats().blocks, 0U);
  EXPECT_EQ(offloaded_.load(), 0U);
  EXPECT_EQ(arena_->stats().in_slots, 0_B);
  EXPECT_EQ(heap_->stats().allocated_blocks, 0U);
}

TEST_F(PauseManagerTest, MemoryWhoseOwnerAPauseOvertookInAFreeTakesItsCopyAlongAtTheNextResume) {
  const driver::DevicePtr at = filled(kTag, 1, main_);
  pauses_->freed(at);  // the owner, on its way to the heap
  ASSERT_TRUE(pause(kTag).ok());
  std::erase(allocated_, at);
  heap_->free(at);

  ASSERT_TRUE(resume(kTag).ok());

  EXPECT_EQ(pauses_->stats().blocks, 0U);
  EXPECT_EQ(offloaded_.load(), 0U);
  EXPECT_EQ(arena_->stats().in_slots, 0_B);
}

TEST_F(PauseManagerTest, MemoryFreedBetweenThePartsOfAPauseGoesAtItsEnd) {
  const driver::DevicePtr at = filled(kTag, 1, main_);
  const std::array tags = {kTag};
  PauseManager::Blocks blocks = pauses_->begin_pause(tags, Contents::kKept).value();

  std::thread([&] { release(at); }).join();
  EXPECT_EQ(heap_->stats().allocated_blocks, 1U);
  pauses_->finish_pause(std::move(blocks));

  EXPECT_EQ(heap_->stats().allocated_blocks, 0U);
  EXPECT_EQ(pauses_->stats().blocks, 0U);
  EXPECT_EQ(arena_->stats().in_slots, 0_B);
  EXPECT_EQ(reserved(), 0_B);
}

TEST_F(PauseManagerTest, MemoryFreedBetweenThePartsOfAResumeGoesAtItsEnd) {
  const driver::DevicePtr at = filled(kTag, 1, main_);
  ASSERT_TRUE(pause(kTag).ok());
  const std::array tags = {kTag};
  PauseManager::Blocks blocks = pauses_->begin_resume(tags).value();

  std::thread([&] { release(at); }).join();
  pauses_->finish_resume(std::move(blocks));

  EXPECT_EQ(heap_->stats().allocated_blocks, 0U);
  EXPECT_EQ(arena_->stats().in_slots, 0_B);
}

TEST_F(PauseManagerTest, MemoryAllocatedUnderAPausedTagIsHere) {
  filled(kTag, 1, main_);
  ASSERT_TRUE(pause(kTag).ok());

  const driver::DevicePtr late = filled(kTag, 2, main_);

  EXPECT_EQ(read(late, main_), 2);
  EXPECT_EQ(pauses_->stats().blocks, 1U);
  EXPECT_TRUE(resume(kTag).ok());
}

TEST_F(PauseManagerTest, PausingWhatIsPausedMovesNothing) {
  filled(kTag, 1, main_);
  ASSERT_TRUE(pause(kTag).ok());

  ASSERT_TRUE(pause(kTag).ok());

  EXPECT_EQ(pauses_->stats().copied_out, kSize);
  EXPECT_EQ(pauses_->stats().blocks, 1U);
  EXPECT_TRUE(resume(kTag).ok());
}

TEST_F(PauseManagerTest, SmallBlocksThatShareAChunkWithOthersKeepTheirContents) {
  const driver::DevicePtr small = allocate(100_KiB, main_, kTag);
  const driver::DevicePtr other = allocate(100_KiB, main_, kOther);
  set_bytes_(small.address(), 5, (100_KiB).count(), main_.handle());
  set_bytes_(other.address(), 6, (100_KiB).count(), main_.handle());

  ASSERT_TRUE(pause(kTag).ok());
  set_bytes_(other.address(), 7, (100_KiB).count(), main_.handle());
  ASSERT_TRUE(resume(kTag).ok());

  std::vector<unsigned char> seen((100_KiB).count());
  table_.MemcpyDtoHAsync(seen.data(), small.address(), seen.size(), main_.handle());
  table_.StreamSynchronize(main_.handle());
  EXPECT_EQ(seen, std::vector<unsigned char>(seen.size(), 5));
}

TEST_F(PauseManagerTest, MemoryThatGetsAnotherTagWhilePausedIsFetchedUnderIt) {
  const driver::DevicePtr at = filled(kTag, 8, main_);
  ASSERT_TRUE(pause(kTag).ok());
  ASSERT_TRUE(heap_->retag(at, kOther));

  EXPECT_EQ(pauses_->tags(), std::set{kOther});
  ASSERT_TRUE(resume(kTag).ok());
  EXPECT_EQ(pauses_->stats().blocks, 1U);
  ASSERT_TRUE(resume(kOther).ok());

  EXPECT_EQ(read(at, main_), 8);
}

TEST_F(PauseManagerTest, TheHostCopyCanBeLookedAtWhilePaused) {
  const driver::DevicePtr at = filled(kTag, 9, main_);
  const auto look = [&] {
    int value = -1;
    pauses_->with_copy(at, [&](const std::byte* data, Bytes) { value = static_cast<int>(*data); });
    return value;
  };
  EXPECT_EQ(look(), -1);

  ASSERT_TRUE(pause(kTag).ok());

  EXPECT_EQ(look(), 9);
  ASSERT_TRUE(resume(kTag).ok());
  EXPECT_EQ(look(), -1);
}

}  // namespace
}  // namespace spillway
