// SPDX-License-Identifier: Apache-2.0
#include "tests/heap/heap_fixture.h"

#include <array>
#include <cstring>
#include <iterator>
#include <map>
#include <random>
#include <thread>

namespace spillway {
namespace {

std::minstd_rand progress;

/// Random calls; every allocated block holds a value of its own at both ends, so that an overlap
/// shows.
class HeapSoakTest : public HeapTest, public testing::WithParamInterface<unsigned> {
 protected:
  struct Live {
    std::size_t size;
    unsigned char value;
  };

  void add(driver::Stream stream) {
    const std::size_t limit = random_() % 4 == 0 ? (12_MiB).count() : (300_KiB).count();
    const std::size_t size = 1 + random_() % limit;
    const auto made = heap_->allocate(Bytes{size}, stream, static_cast<TagId>(random_() % 4));
    if (!made.ok()) {
      EXPECT_EQ(made.status().code(), Code::kOutOfDeviceMemory) << made.status().message();
      return;
    }
    const auto value = static_cast<unsigned char>(random_());
    *byte(made.value(), 0) = *byte(made.value(), size - 1) = value;
    EXPECT_TRUE(blocks_.emplace(made.value(), Live{size, value}).second);
  }

  void remove() {
    if (blocks_.empty()) return;
    const auto block = any();
    EXPECT_EQ(*byte(block->first, 0), block->second.value);
    EXPECT_EQ(*byte(block->first, block->second.size - 1), block->second.value);
    heap_->free(block->first);
    blocks_.erase(block);
  }

  std::map<driver::DevicePtr, Live>::iterator any() {
    const auto index = static_cast<std::ptrdiff_t>(random_() % blocks_.size());
    return std::next(blocks_.begin(), index);
  }

  static unsigned char* byte(driver::DevicePtr at, std::size_t offset) {
    return static_cast<unsigned char*>(at.raw()) + offset;
  }

  std::mt19937 random_{GetParam()};
  std::map<driver::DevicePtr, Live> blocks_;
};

TEST_P(HeapSoakTest, TheAccountingIsConsistentDuringRandomCalls) {
  progress.seed(GetParam() + 1);
  table_.EventQuery = [](CUevent) {
    return progress() % 3 == 0 ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
  };
  driver::Timeline& copies = timeline(table_);
  const std::array streams = {main_, side_, make_stream()};
  for (int step = 0; step < 4000; ++step) {
    const driver::Stream stream = streams.at(random_() % streams.size());
    const auto action = random_() % 100;
    if (action < 46) add(stream);
    if (action >= 46 && action < 92) remove();
    if (action >= 92 && action < 95 && !blocks_.empty()) heap_->record_use(any()->first, stream);
    if (action >= 95 && action < 98 && !blocks_.empty()) {
      heap_->add_fence(any()->first, copies.mark().value());
    }
    if (action == 98) heap_->trim_sync();
    if (action == 99) heap_->limits().set_limit(random_() % 2 == 0 ? 0_B : 120_MiB);
    if (step % 8 == 0) {
      ASSERT_EQ(heap_->view().check(), "") << "step " << step;
    }
  }
  while (!blocks_.empty())
    remove();

  EXPECT_GT(heap_->stats().fence_waits, 0U);
  heap_->trim_sync();
  EXPECT_EQ(heap_->stats().reserved, 0_B);
  EXPECT_EQ(heap_->view().check(), "");
}

INSTANTIATE_TEST_SUITE_P(Seeds, HeapSoakTest, testing::Values(1U, 2U, 3U));

class HeapThreadsTest : public HeapTest {
 protected:
  /// Allocates on `stream`, and frees what another thread has left in `shared`.
  void churn(driver::Stream stream, unsigned seed) {
    std::mt19937 random(seed);
    for (int i = 0; i < 400; ++i) {
      const auto made = heap_->allocate(Bytes{1 + random() % (2_MiB).count()}, stream, TagId{1});
      ASSERT_TRUE(made.ok());
      std::memset(made.value().raw(), static_cast<int>(seed), 64);
      heap_->record_use(made.value(), side_);
      heap_->free(swap(random() % shared_.size(), made.value()));
      if (i % 100 == 0) heap_->trim_sync();
      if (i % 10 == 0) static_cast<void>(heap_->view().describe());
    }
  }

  driver::DevicePtr swap(std::size_t at, driver::DevicePtr with) {
    const Lock lock(mutex_);
    return std::exchange(shared_.at(at), with);
  }

  Mutex mutex_;
  std::array<driver::DevicePtr, 16> shared_ SPILLWAY_GUARDED_BY(mutex_){};
};

TEST_F(HeapThreadsTest, ThreadsMayAllocateAndFreeEachOthersBlocks) {
  const std::array streams = {main_, make_stream(), make_stream(), make_stream()};
  std::vector<std::thread> threads;
  for (unsigned i = 0; i < streams.size(); ++i) {
    threads.emplace_back([this, &streams, i] { churn(streams.at(i), i + 1); });
  }
  for (std::thread& thread : threads)
    thread.join();
  for (const driver::DevicePtr block : shared_)
    heap_->free(block);

  EXPECT_EQ(heap_->view().check(), "");
  EXPECT_EQ(heap_->stats().allocations, 1600U);
  EXPECT_EQ(heap_->stats().allocated_blocks, 0U);
}

}  // namespace
}  // namespace spillway
