// SPDX-License-Identifier: Apache-2.0
#include "tests/heap/heap_fixture.h"
#include "tests/support/setting.h"

#include <array>
#include <cstring>
#include <random>
#include <thread>
#include <utility>

namespace spillway {
namespace {

/// Threads with a stream each that allocate, mark, evict and restore, and free each other's blocks.
class HeapModelThreadsTest : public HeapTest {
 protected:
  struct Owned {
    driver::DevicePtr at;
    Bytes size;
  };

  void churn(driver::Stream stream, unsigned number, std::uint64_t calls) {
    const driver::CurrentDevice current(table_, device_.context);
    std::mt19937_64 random(seed_ + number);
    for (std::uint64_t i = 0; i < calls; ++i) {
      const Bytes size{1 + random() % (random() % 8 == 0 ? (2_MiB).count() : (8_KiB).count())};
      const auto made = heap_->allocate(size, stream, static_cast<TagId>(number));
      ASSERT_TRUE(made.ok()) << made.status().message();
      const driver::DevicePtr at = made.value();
      write(at, size, number);
      if (random() % 16 == 0) heap_->record_use(at, side_);
      if (random() % 256 == 0) evict_and_restore(at, stream);
      ASSERT_EQ(heap_->find(at).at, at);
      const Owned other = swap(random() % shared_.size(), {at, size});
      if (other.at == driver::DevicePtr{}) continue;
      const auto* const bytes = static_cast<const unsigned char*>(other.at.raw());
      ASSERT_EQ(bytes[0], bytes[other.size.count() - 1]);
      ASSERT_TRUE(heap_->free(other.at));
      if (i % 2048 == 0) heap_->trim_sync();
      if (i % 1024 == 0) static_cast<void>(heap_->stats());
    }
  }

  /// Threads that churn, with a stream each.
  std::vector<std::thread> start(unsigned count, std::uint64_t calls) {
    std::printf("TEST_SEED=%llu\n", static_cast<unsigned long long>(seed_));
    std::vector<std::thread> threads;
    for (unsigned i = 1; i <= count; ++i)
      threads.emplace_back([=, this, stream = make_stream()] { churn(stream, i, calls); });
    return threads;
  }

  void expect_right_accounting() {
    EXPECT_EQ(heap_->view().check(), "");
    {
      const Lock lock(mutex_);
      for (const Owned& left : shared_)
        EXPECT_TRUE(heap_->free(left.at));
    }
    EXPECT_EQ(heap_->stats().allocated_blocks, 0U);
    EXPECT_EQ(heap_->stats().allocated, 0_B);
    for (const HeapTagInfo& tag : heap_->view().tags())
      EXPECT_EQ(tag.allocated, 0_B);
    heap_->trim_sync();
    EXPECT_EQ(heap_->stats().reserved, 0_B);
  }

  static void write(driver::DevicePtr at, Bytes size, unsigned value) {
    auto* const bytes = static_cast<unsigned char*>(at.raw());
    bytes[0] = bytes[size.count() - 1] = static_cast<unsigned char>(value);
  }

  void evict_and_restore(driver::DevicePtr at, driver::Stream stream) {
    const std::array blocks = {at};
    table_.StreamSynchronize(stream.handle());
    ASSERT_TRUE(heap_->evict(blocks).ok());
    ASSERT_TRUE(heap_->restore(blocks).ok());
    const HeapBlockInfo block = heap_->find(at);
    write(at, block.requested, 7);
  }

  Owned swap(std::size_t at, Owned with) {
    const Lock lock(mutex_);
    return std::exchange(shared_.at(at), with);
  }

  const std::uint64_t seed_ = setting("TEST_SEED", std::random_device{}());
  Mutex mutex_;
  std::array<Owned, 64> shared_ SPILLWAY_GUARDED_BY(mutex_){};
};

TEST_F(HeapModelThreadsTest, ThreadsLeaveTheAccountingCorrect) {
  constexpr unsigned kThreads = 4;
  // Each call here is some four of the heap's.
  const std::uint64_t calls = setting("OPERATIONS", 200'000) / 8 / kThreads;
  std::vector<std::thread> threads = start(kThreads, calls);
  for (std::thread& thread : threads)
    thread.join();

  expect_right_accounting();
}

TEST_F(HeapModelThreadsTest, ThreadsAroundAReplayedStepLeaveTheAccountingCorrect) {
  constexpr unsigned kThreads = 2;
  constexpr std::uint64_t kRequests = 32;
  HeapOptions options;
  options.replay = true;
  make_heap(options);
  const std::uint64_t calls = setting("OPERATIONS", 200'000) / 8 / (kThreads + 1);
  std::vector<std::thread> threads = start(kThreads, calls);
  for (std::uint64_t round = 0; round < calls / kRequests; ++round) {
    std::vector<Owned> mine;
    for (std::uint64_t i = 0; i < kRequests; ++i) {
      const Bytes size{512 + i * 7919 % (64 << 10)};
      const auto made = heap_->allocate(size, main_, TagId{9});
      EXPECT_TRUE(made.ok()) << made.status().message();
      write(made.value(), size, 9);
      mine.push_back({made.value(), size});
      if (i % 3 != 2) continue;
      EXPECT_TRUE(heap_->free(mine.front().at));
      mine.erase(mine.begin());
    }
    // Every now and then another thread has the last one.
    if (round % 64 == 63) mine.back() = swap(0, mine.back());
    for (const Owned& block : mine)
      EXPECT_TRUE(heap_->free(block.at));
    heap_->placement().end_step();
  }
  for (std::thread& thread : threads)
    thread.join();

  EXPECT_GT(heap_->stats().replayed_allocations, 0U);
  expect_right_accounting();
}

}  // namespace
}  // namespace spillway
