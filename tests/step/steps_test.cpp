// SPDX-License-Identifier: Apache-2.0
#include "tests/runtime/runtime_fixture.h"

#include <string>
#include <thread>

namespace spillway {
namespace {

using StepsTest = RuntimeTest;

TEST_F(StepsTest, AStepEndsWithItsLastHandleOnceTheBackwardPassHasBegun) {
  auto saved = forward(kTag, 1.0, {1_MiB, 1_MiB});
  use(std::move(saved[1]));
  EXPECT_EQ(runtime_->stats().steps, 0U);

  use(std::move(saved[0]));

  EXPECT_EQ(runtime_->stats().steps, 1U);
}

TEST_F(StepsTest, AnOpenRegionDoesNotKeepAStepOpenOnceTheBackwardPassHasBegun) {
  enter(kTag, 1.0);

  use(save(kTag, 1_MiB));

  EXPECT_EQ(runtime_->stats().steps, 1U);
  runtime_->step().leave_region(kTag);
}

TEST_F(StepsTest, AGraphThatIsDroppedInsideTheRegionDoesNotEndTheStep) {
  enter(kTag, 1.0);

  release(save(kTag, 1_MiB));

  EXPECT_EQ(runtime_->stats().steps, 0U);
  runtime_->step().leave_region(kTag);
}

TEST_F(StepsTest, TheBackwardPassOfAStepIsForgottenInTheNextOne) {
  train(1.0, {1_MiB});
  enter(kTag, 1.0);

  release(save(kTag, 1_MiB));

  EXPECT_EQ(runtime_->stats().steps, 1U);
  runtime_->step().leave_region(kTag);
}

TEST_F(StepsTest, LeavingTheRegionEndsTheStepWhereNoHandleLivesAnyMore) {
  enter(kTag, 1.0);
  release(save(kTag, 1_MiB));

  runtime_->step().leave_region(kTag);

  EXPECT_EQ(runtime_->stats().steps, 1U);
}

TEST_F(StepsTest, AGraphThatIsDroppedOutsideAllRegionsEndsTheStep) {
  auto saved = forward(kTag, 1.0, {1_MiB});

  release(std::move(saved[0]));

  EXPECT_EQ(runtime_->stats().steps, 1U);
}

TEST_F(StepsTest, AStepLooksAtNoTagThatItDoesNotUse) {
  for (int i = 0; i < 1000; ++i) {
    const TagId tag = intern_tag("tag/" + std::to_string(i));
    enter(tag, 1.0);
    runtime_->step().leave_region(tag);
  }
  const std::uint64_t before = runtime_->step().tags_visited();

  for (int i = 0; i < 10; ++i)
    train(1.0, {1_MiB});
  runtime_->step().end(StepEnd::kRequested);

  EXPECT_EQ(runtime_->stats().steps, 10U);
  EXPECT_EQ(runtime_->step().tags_visited() - before, 10U);
}

TEST_F(StepsTest, TwoLiveGraphsAreOneStep) {
  auto first = forward(kTag, 1.0, {1_MiB});
  auto second = forward(kTag, 1.0, {1_MiB});

  backward(std::move(first));
  EXPECT_EQ(runtime_->stats().steps, 0U);
  backward(std::move(second));

  EXPECT_EQ(runtime_->stats().steps, 1U);
  EXPECT_EQ(last().offloadable, 2_MiB);
}

TEST_F(StepsTest, AStepCanBeEndedWhileHandlesLive) {
  auto saved = forward(kTag, 1.0, {1_MiB});

  runtime_->step().end(StepEnd::kRequested);

  EXPECT_EQ(last().offloaded, 1_MiB);
  backward(std::move(saved));
}

TEST_F(StepsTest, AStepInWhichNothingWasSavedChangesNothing) {
  train(1.0, {1_MiB});
  const TagStepStats before = last();

  enter(kTag, 1.0);
  runtime_->step().leave_region(kTag);
  runtime_->step().end(StepEnd::kRequested);

  EXPECT_EQ(runtime_->stats().steps, 1U);
  EXPECT_EQ(last().offloadable, before.offloadable);
}

TEST_F(StepsTest, WhatAnOldStepStillReportsIsNotCountedInTheNewOne) {
  auto saved = forward(kTag, 1.0, {1_MiB});
  runtime_->step().end(StepEnd::kRequested);
  const Site old = saved[0].decision.site;

  runtime_->step().on_event(StorageEvent::kAliveAtUnpack, old, 1_MiB);
  runtime_->step().on_event(StorageEvent::kNoHostMemory, old, 1_MiB);

  EXPECT_EQ(skip(stats_of(kTag).running, SkipReason::kNoHostMemory).storages, 0U);
  backward(std::move(saved));
}

TEST_F(StepsTest, TheRatioHoldsInEveryStepAlsoWhenTheBatchChanges) {
  for (const std::uint64_t batch : {4U, 4U, 4U, 3U, 4U, 1U, 1U}) {
    train(0.5, std::vector<Bytes>(7, Bytes{batch * 100000}));

    const TagStepStats step = last();
    EXPECT_EQ(step.offloadable, Bytes{7 * batch * 100000});
    EXPECT_EQ(step.offloaded, Bytes{3 * batch * 100000});
    EXPECT_EQ(step.fetched, step.offloaded);
  }
}

TEST_F(StepsTest, AStorageThatWasAliveIsCountedByItsReasonFromTheNextStepOn) {
  auto saved = forward(kTag, 1.0, {1_MiB, 2_MiB});
  runtime_->step().on_event(StorageEvent::kAliveAtUnpack, saved[0].decision.site, 1_MiB);
  backward(std::move(saved));

  train(1.0, {1_MiB, 2_MiB});

  EXPECT_EQ(last().offloadable, 2_MiB);
  EXPECT_EQ(last().offloaded, 2_MiB);
  EXPECT_EQ(skip(last(), SkipReason::kReferencedElsewhere).bytes, 1_MiB);
}

TEST_F(StepsTest, SkippedStoragesAreCountedByReason) {
  enter(kTag, 1.0);
  runtime_->step().skipped(kTag, SkipReason::kParameter, 3_MiB);
  runtime_->step().skipped(kTag, SkipReason::kParameter, 1_MiB);
  use(save(kTag, 1_MiB));
  runtime_->step().leave_region(kTag);

  EXPECT_EQ(skip(last(), SkipReason::kParameter).storages, 2U);
  EXPECT_EQ(skip(last(), SkipReason::kParameter).bytes, 4_MiB);
  EXPECT_EQ(last().offloadable, 1_MiB);
}

TEST_F(StepsTest, AnotherShapeInMidStepIsCountedAsAMismatch) {
  train(0.5, {1_MiB, 1_MiB});

  train(0.5, {1_MiB, 2_MiB});

  EXPECT_EQ(stats_of(kTag).plan_mismatches, 1U);
}

TEST_F(StepsTest, ThreadsMayTrainAtTheSameTime) {
  std::vector<std::thread> threads;
  for (const char* name : {"a", "b", "c"}) {
    threads.emplace_back([this, tag = intern_tag(name)] {
      // A stream, and so memory, of its own: free memory that threads share goes from one to the
      // other under a lock that the order checker cannot see.
      const driver::Device& device = runtime_->device(DeviceId{0}).value()->device();
      const driver::CurrentDevice current(*device.api, device.context);
      CUstream own = nullptr;
      ASSERT_EQ(device.api->StreamCreateWithPriority(&own, CU_STREAM_NON_BLOCKING, 0),
                CUDA_SUCCESS);
      stream() = driver::Stream(own);
      for (int step = 0; step < 30; ++step)
        backward(forward(tag, 0.5, std::vector<Bytes>(6, 50_KiB)));
      EXPECT_EQ(device.api->StreamSynchronize(own), CUDA_SUCCESS);
    });
  }
  for (std::thread& thread : threads)
    thread.join();

  EXPECT_EQ(runtime_->stats().saved_tensor_handles, 0);
  EXPECT_EQ(runtime_->stats().devices.at(0).residency.on_host, 0_B);
}

}  // namespace
}  // namespace spillway
