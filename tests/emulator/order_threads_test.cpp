// SPDX-License-Identifier: Apache-2.0
// Host threads are ordered only by explicit synchronization: two threads use the same bytes, one
// after the other, and what lies between them decides whether that is an order.
#include "tests/emulator/emulated.h"

#include <semaphore.h>

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <shared_mutex>
#include <thread>
#include <vector>

namespace {

using namespace emulated;

class OrderThreadsTest : public emulated::Test {
 protected:
  void SetUp() override {
    emulated::Test::SetUp();
#ifdef __SANITIZE_THREAD__
    GTEST_SKIP() << "ThreadSanitizer stands where the order checker listens to threads";
#endif
  }

  void TearDown() override {
    ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  }

  /// The first thread fills the block, waits until that is done and signals; the second reads it.
  /// They do run one after the other, but an atomic is nothing that the checker sees.
  template <typename Notify, typename Wait>
  void write_then_read(Notify&& notify, Wait&& wait) {
    std::atomic<bool> said{false};
    std::thread second([&] {
      while (!said.load())
        std::this_thread::yield();
      wait();
      copy(target_.at(), block_.at(), kPage, out_);
    });
    std::thread first([&] {
      copy(block_.at(), source_.at(), kPage, in_);
      EXPECT_EQ(cudaStreamSynchronize(in_), cudaSuccess);
      notify();
      said.store(true);
    });
    first.join();
    second.join();
  }

  const DeviceBytes block_{kPage};
  const LockedBytes source_{kPage, 1};
  const LockedBytes target_{kPage, 0};
  cudaStream_t in_ = make_stream();
  cudaStream_t out_ = make_stream();
};

TEST_F(OrderThreadsTest, WhatOneThreadWaitedForAnotherDoesNotKnow) {
  write_then_read([] {}, [] {});

  ASSERT_EQ(reports().size(), 1U);
  EXPECT_NE(reports()[0].find("read after write: \"memcpy device to host\""), std::string::npos);
}

TEST_F(OrderThreadsTest, AMutexHandsOver) {
  std::mutex mutex;
  const auto meet = [&] {
    const std::lock_guard guard(mutex);
  };
  write_then_read(meet, meet);

  EXPECT_EQ(reports().size(), 0U);
}

TEST_F(OrderThreadsTest, DifferentMutexesOrderNothingHoweverManyThereAre) {
  std::vector<std::mutex> mutexes(2000);
  const auto meet = [&](std::size_t from) {
    for (std::size_t i = from; i < from + mutexes.size() / 2; ++i)
      const std::lock_guard guard(mutexes[i]);
  };
  write_then_read([&] { meet(0); }, [&] { meet(mutexes.size() / 2); });

  EXPECT_EQ(reports().size(), 1U);
}

TEST_F(OrderThreadsTest, AReadersLockHandsOver) {
  std::shared_mutex mutex;
  write_then_read([&] { const std::unique_lock guard(mutex); },
                  [&] { const std::shared_lock guard(mutex); });

  EXPECT_EQ(reports().size(), 0U);
}

TEST_F(OrderThreadsTest, ASemaphoreHandsOver) {
  sem_t semaphore;
  ASSERT_EQ(sem_init(&semaphore, 0, 0), 0);
  write_then_read([&] { sem_post(&semaphore); }, [&] { sem_wait(&semaphore); });

  EXPECT_EQ(reports().size(), 0U);
  sem_destroy(&semaphore);
}

TEST_F(OrderThreadsTest, ASemaphoreThatWasTakenOrdersNothing) {
  sem_t semaphore;
  ASSERT_EQ(sem_init(&semaphore, 0, 0), 0);
  write_then_read(
      [&] {
        sem_post(&semaphore);
        sem_wait(&semaphore);
      },
      [&] { EXPECT_NE(sem_trywait(&semaphore), 0); });

  EXPECT_EQ(reports().size(), 1U);
  sem_destroy(&semaphore);
}

TEST_F(OrderThreadsTest, AWaitForAConditionOrdersBothWays) {
  std::mutex mutex;
  std::condition_variable condition;
  bool filled = false;
  bool waiting = false;
  std::thread reader([&] {
    std::unique_lock lock(mutex);
    copy(block_.at(), source_.at(), kPage, in_);
    EXPECT_EQ(cudaStreamSynchronize(in_), cudaSuccess);
    waiting = true;
    condition.notify_all();
    condition.wait(lock, [&] { return filled; });
    copy(target_.at(), block_.at(), kPage, in_);
  });
  {
    std::unique_lock lock(mutex);
    condition.wait(lock, [&] { return waiting; });
    ASSERT_EQ(cudaMemsetAsync(block_.at(), 2, kPage, out_), cudaSuccess);
    ASSERT_EQ(cudaStreamSynchronize(out_), cudaSuccess);
    filled = true;
    condition.notify_all();
  }
  reader.join();

  EXPECT_EQ(reports().size(), 0U);
}

TEST_F(OrderThreadsTest, AThreadKnowsWhatItsCreatorKnewAndWhoJoinsItLearns) {
  copy(block_.at(), source_.at(), kPage, in_);
  ASSERT_EQ(cudaStreamSynchronize(in_), cudaSuccess);
  std::thread([&] {
    copy(target_.at(), block_.at(), kPage, out_);
    EXPECT_EQ(cudaStreamSynchronize(out_), cudaSuccess);
  }).join();
  ASSERT_EQ(cudaMemsetAsync(block_.at(), 2, kPage, in_), cudaSuccess);

  EXPECT_EQ(reports().size(), 0U);
}

TEST_F(OrderThreadsTest, WhatTheCreatorLearnsLaterAThreadDoesNotKnow) {
  std::atomic<bool> filled{false};
  std::thread second([&] {
    while (!filled.load())
      std::this_thread::yield();
    copy(target_.at(), block_.at(), kPage, out_);
  });
  copy(block_.at(), source_.at(), kPage, in_);
  ASSERT_EQ(cudaStreamSynchronize(in_), cudaSuccess);
  filled.store(true);
  second.join();

  EXPECT_EQ(reports().size(), 1U);
}

TEST_F(OrderThreadsTest, AnEventThatOneThreadRecordedOrdersTheStreamOfAnother) {
  cudaEvent_t event = emulated::make_event();
  write_then_read([&] { EXPECT_EQ(cudaEventRecord(event, in_), cudaSuccess); },
                  [&] { EXPECT_EQ(cudaStreamWaitEvent(out_, event, 0), cudaSuccess); });

  EXPECT_EQ(reports().size(), 0U);
}

TEST_F(OrderThreadsTest, HostAccessesOfTwoThreadsAreNamedByTheirThreads) {
  std::atomic<bool> written{false};
  std::thread reader([&] {
    while (!written.load())
      std::this_thread::yield();
    spillway_emulator_host_access(source_.at(), kPage, 0, "aten::sum");
  });
  spillway_emulator_host_access(source_.at(), kPage, 1, "aten::fill_");
  written.store(true);
  reader.join();

  ASSERT_EQ(reports().size(), 1U);
  EXPECT_NE(reports()[0].find("\"aten::sum\" on host thread "), std::string::npos) << reports()[0];
  EXPECT_NE(reports()[0].find("\"aten::fill_\" on the host"), std::string::npos) << reports()[0];
}

struct HostWork {
  const void* at;
  bool write;
  sem_t* done;
};

void CUDART_CB touch(void* argument) {
  const auto* work = static_cast<const HostWork*>(argument);
  spillway_emulator_host_access(work->at, kPage, work->write ? 1 : 0, "host function");
  if (work->done != nullptr) sem_post(work->done);
}

TEST_F(OrderThreadsTest, AHostFunctionActsInItsStream) {
  HostWork work{source_.at(), true, nullptr};
  ASSERT_EQ(cudaLaunchHostFunc(in_, touch, &work), cudaSuccess);
  copy(block_.at(), source_.at(), kPage, in_);
  EXPECT_EQ(reports().size(), 0U);

  ASSERT_EQ(cudaLaunchHostFunc(out_, touch, &work), cudaSuccess);

  ASSERT_EQ(reports().size(), 1U);
  EXPECT_NE(reports()[0].find("\"host function\" on stream"), std::string::npos) << reports()[0];
}

TEST_F(OrderThreadsTest, WhatAHostFunctionWroteTheThreadThatQueuedItDoesNotKnow) {
  HostWork work{source_.at(), true, nullptr};
  ASSERT_EQ(cudaLaunchHostFunc(in_, touch, &work), cudaSuccess);
  spillway_emulator_host_access(source_.at(), kPage, 0, "aten::sum");

  EXPECT_EQ(reports().size(), 1U);
}

TEST_F(OrderThreadsTest, AHostFunctionThatPostsASemaphoreOrdersWhoWaitsForIt) {
  sem_t semaphore;
  ASSERT_EQ(sem_init(&semaphore, 0, 0), 0);
  HostWork work{source_.at(), true, &semaphore};
  ASSERT_EQ(cudaLaunchHostFunc(in_, touch, &work), cudaSuccess);
  ASSERT_EQ(sem_wait(&semaphore), 0);
  spillway_emulator_host_access(source_.at(), kPage, 0, "aten::sum");

  EXPECT_EQ(reports().size(), 0U);
  sem_destroy(&semaphore);
}

TEST_F(OrderThreadsTest, ThreadsThatComeAndGoUseTheNumbersOfEarlierOnes) {
  constexpr int kThreads = 5000;  // more than there are numbers
  for (int i = 0; i < kThreads; ++i) {
    std::thread([] { EXPECT_EQ(cudaSetDevice(0), cudaSuccess); }).join();
  }
  write_then_read([] {}, [] {});

  EXPECT_EQ(reports().size(), 1U);
}

}  // namespace
