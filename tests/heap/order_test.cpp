// SPDX-License-Identifier: Apache-2.0
#include "emulator/emulator.h"
#include "tests/heap/heap_fixture.h"

#include <array>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <utility>

namespace spillway {
namespace {

constexpr std::size_t kSize = std::size_t{2} << 20U;

/// Pinned host memory.
class Pinned {
 public:
  explicit Pinned(const driver::Api& api) : api_(api), data_(std::aligned_alloc(4096, kSize)) {
    EXPECT_EQ(api_.MemHostRegister(data_, kSize, 0), CUDA_SUCCESS);
  }

  ~Pinned() {
    api_.MemHostUnregister(data_);
    std::free(data_);
  }

  Pinned(const Pinned&) = delete;
  Pinned& operator=(const Pinned&) = delete;

  void fill(int value) { std::memset(data_, value, kSize); }

  [[nodiscard]] void* data() const { return data_; }

  [[nodiscard]] int first() const { return *static_cast<const unsigned char*>(data_); }

 private:
  const driver::Api& api_;
  void* data_;
};

/// Runs with SPILLWAY_EMULATE_SCHEDULE=late and SPILLWAY_EMULATE_CHECK=1: a copy runs only when
/// something needs it, and unordered operations on the same bytes are named. A block is read on
/// `side_` while it is freed and given to `main_` again, which overwrites it.
class HeapOrderTest : public HeapTest {
 protected:
  void SetUp() override {
    HeapTest::SetUp();
    spillway_emulator_clear_races();
    reports_ = spillway_emulator_count("unordered");
    old_ = std::make_unique<Pinned>(table_);
    new_ = std::make_unique<Pinned>(table_);
    out_ = std::make_unique<Pinned>(table_);
    old_->fill(11);
    new_->fill(22);
    out_->fill(33);
    no_waits_ = table_;
    no_waits_.StreamWaitEvent = [](CUstream, CUevent, unsigned) {
      return CUDA_SUCCESS;
    };
    block_ = allocate(Bytes{kSize});
    write(*old_);
  }

  void TearDown() override {
    HeapTest::TearDown();
    old_.reset();
    new_.reset();
    out_.reset();
  }

  void write(const Pinned& source) {
    EXPECT_EQ(table_.MemcpyHtoDAsync(block_.address(), source.data(), kSize, main_.handle()),
              CUDA_SUCCESS);
  }

  /// Queues the copy of the block to `out_` on `side_`, after what `main_` has been given.
  void read_on_side() { read_on_side(block_, kSize); }

  void read_on_side(driver::DevicePtr block, std::size_t size) {
    timelines_.push_back(std::make_unique<driver::Timeline>(device_, main_));
    const driver::Fence written = timelines_.back()->mark().value();
    ASSERT_TRUE(driver::Timeline::wait(side_, written).ok());
    EXPECT_EQ(table_.MemcpyDtoHAsync(out_->data(), block.address(), size, side_.handle()),
              CUDA_SUCCESS);
  }

  void reuse_and_overwrite() {
    free(block_);
    EXPECT_EQ(allocate(Bytes{kSize}), block_);
    write(*new_);
    EXPECT_EQ(table_.StreamSynchronize(main_.handle()), CUDA_SUCCESS);
    EXPECT_EQ(table_.StreamSynchronize(side_.handle()), CUDA_SUCCESS);
  }

  [[nodiscard]] std::uint64_t reports() const {
    return spillway_emulator_count("unordered") - reports_;
  }

  driver::Api no_waits_;
  std::unique_ptr<Pinned> old_;
  std::unique_ptr<Pinned> new_;
  std::unique_ptr<Pinned> out_;
  driver::DevicePtr block_;
  std::uint64_t reports_ = 0;
};

TEST_F(HeapOrderTest, MemoryMovesInStreamOrderWhileTheDeviceStillUsesItsFormerAddress) {
  allocate(2_MiB);  // keeps them apart
  const auto other = allocate(2_MiB);
  allocate(2_MiB);
  EXPECT_EQ(table_.MemcpyDtoHAsync(out_->data(), block_.address(), kSize, main_.handle()),
            CUDA_SUCCESS);
  free(block_);
  free(other);
  heap_->placement().set_target(heap_->stats().reserved);
  block_ = allocate(4_MiB);
  write(*new_);
  EXPECT_EQ(table_.StreamSynchronize(main_.handle()), CUDA_SUCCESS);
  EXPECT_EQ(table_.MemcpyDtoHAsync(old_->data(), block_.address(), kSize, main_.handle()),
            CUDA_SUCCESS);
  EXPECT_EQ(table_.StreamSynchronize(main_.handle()), CUDA_SUCCESS);

  EXPECT_EQ(out_->first(), 11);
  EXPECT_EQ(old_->first(), 22);
  EXPECT_EQ(reports(), 0U);
}

TEST_F(HeapOrderTest, MemoryMovesAfterACopyOnAnotherStreamHasReadIt) {
  allocate(2_MiB);  // keeps them apart
  const auto other = allocate(2_MiB);
  allocate(2_MiB);
  read_on_side();
  heap_->add_fence(block_, timeline(table_).mark().value());
  free(block_);
  free(other);
  heap_->placement().set_target(heap_->stats().reserved);
  block_ = allocate(4_MiB);
  write(*new_);
  EXPECT_EQ(table_.MemcpyHtoDAsync((block_ + 2_MiB).address(), new_->data(), kSize, main_.handle()),
            CUDA_SUCCESS);
  EXPECT_EQ(table_.StreamSynchronize(main_.handle()), CUDA_SUCCESS);
  EXPECT_EQ(table_.StreamSynchronize(side_.handle()), CUDA_SUCCESS);

  EXPECT_EQ(out_->first(), 11);
  EXPECT_EQ(reports(), 0U);
}

TEST_F(HeapOrderTest, AReaderOfAFreedBlockSeesTheOldBytes) {
  read_on_side();
  heap_->add_fence(block_, timeline(table_).mark().value());
  reuse_and_overwrite();

  EXPECT_EQ(out_->first(), 11);
  EXPECT_EQ(reports(), 0U);
  EXPECT_EQ(heap_->stats().fence_waits, 1U);
}

TEST_F(HeapOrderTest, WithoutTheWaitForTheFenceTheReaderSeesNewBytesAndBothOperationsAreNamed) {
  read_on_side();
  heap_->add_fence(block_, timeline(no_waits_).mark().value());
  reuse_and_overwrite();

  EXPECT_EQ(out_->first(), 22);
  ASSERT_GE(reports(), 1U);
  EXPECT_NE(std::string(spillway_emulator_race(0)).find("memcpy"), std::string::npos);
}

TEST_F(HeapOrderTest, AnotherStreamThatUsedAFreedBlockSeesTheOldBytes) {
  read_on_side();
  heap_->record_use(block_, side_);
  reuse_and_overwrite();

  EXPECT_EQ(out_->first(), 11);
  EXPECT_EQ(reports(), 0U);
}

TEST_F(HeapOrderTest, WithoutTheWaitForTheOtherStreamItSeesNewBytesAndBothOperationsAreNamed) {
  read_on_side();
  heap_->record_use(block_, side_);
  table_.StreamWaitEvent = no_waits_.StreamWaitEvent;
  reuse_and_overwrite();

  EXPECT_EQ(out_->first(), 22);
  EXPECT_GE(reports(), 1U);
}

TEST_F(HeapOrderTest, GrowthOverAFencedTailLetsTheReaderFinish) {
  read_on_side();
  heap_->add_fence(block_, timeline(table_).mark().value());
  free(block_);
  EXPECT_EQ(allocate(Bytes{2 * kSize}), block_);
  write(*new_);
  EXPECT_EQ(table_.StreamSynchronize(main_.handle()), CUDA_SUCCESS);
  EXPECT_EQ(table_.StreamSynchronize(side_.handle()), CUDA_SUCCESS);

  EXPECT_EQ(out_->first(), 11);
  EXPECT_EQ(reports(), 0U);
}

TEST_F(HeapOrderTest, TheRestOfAReusedBlockIsOrderedByTheSameWait) {
  read_on_side();
  heap_->add_fence(block_, timeline(table_).mark().value());
  free(block_);
  static_cast<void>(allocate(Bytes{kSize / 4 * 3}));
  const auto rest = allocate(Bytes{kSize / 4 + 1});
  EXPECT_NE(rest, driver::DevicePtr{});
  write(*new_);
  EXPECT_EQ(table_.StreamSynchronize(main_.handle()), CUDA_SUCCESS);
  EXPECT_EQ(table_.StreamSynchronize(side_.handle()), CUDA_SUCCESS);

  EXPECT_EQ(out_->first(), 11);
  EXPECT_EQ(reports(), 0U);
}

TEST_F(HeapOrderTest, AThreadRelyingOnAFenceThatAnotherOneSawPassIsOrdered) {
  read_on_side();
  heap_->add_fence(block_, timeline(table_).mark().value());
  free(block_);
  std::atomic<bool> seen{false};
  std::thread relies([&] {
    while (!seen)
      std::this_thread::yield();
    EXPECT_EQ(allocate(Bytes{kSize}), block_);
    write(*new_);
  });
  std::thread sees([&] {
    EXPECT_EQ(table_.StreamSynchronize(side_.handle()), CUDA_SUCCESS);
    free(allocate(Bytes{kSize}));
    seen = true;
  });
  relies.join();
  sees.join();

  EXPECT_EQ(heap_->stats().fence_waits, 0U);
  EXPECT_EQ(reports(), 0U);
}

TEST_F(HeapOrderTest, TrimLetsTheReaderFinishBeforeItUnmaps) {
  read_on_side();
  heap_->add_fence(block_, timeline(table_).mark().value());
  free(block_);

  EXPECT_EQ(heap_->trim_sync(), Bytes{kSize});
  EXPECT_EQ(out_->first(), 11);
}

TEST_F(HeapOrderTest, TrimLetsTheBlocksOwnStreamFinishBeforeItUnmaps) {
  EXPECT_EQ(table_.MemcpyDtoHAsync(out_->data(), block_.address(), kSize, main_.handle()),
            CUDA_SUCCESS);
  free(block_);

  EXPECT_EQ(heap_->trim_sync(), Bytes{kSize});
  EXPECT_EQ(out_->first(), 11);
}

TEST_F(HeapOrderTest, AnotherStreamThatUsedAReplayedBlockSeesTheOldBytes) {
  EXPECT_EQ(table_.StreamSynchronize(main_.handle()), CUDA_SUCCESS);
  free(block_);
  HeapOptions options;
  options.replay = true;
  make_heap(options);
  for (int i = 0; i < 2; ++i) {
    for (int request = 0; request < 2; ++request)
      free(allocate(Bytes{kSize}));
    heap_->placement().end_step();
  }
  block_ = allocate(Bytes{kSize});
  ASSERT_EQ(heap_->stats().replayed_allocations, 1U);
  write(*old_);
  read_on_side();
  heap_->record_use(block_, side_);
  free(block_);
  const auto replayed = std::exchange(block_, allocate(Bytes{kSize}));
  write(*new_);
  EXPECT_EQ(block_, replayed);
  free(block_);
  heap_->placement().end_step();
  block_ = allocate(Bytes{kSize});
  write(*new_);
  for (const driver::Stream stream : {main_, side_})
    EXPECT_EQ(table_.StreamSynchronize(stream.handle()), CUDA_SUCCESS);

  EXPECT_EQ(out_->first(), 11);
  EXPECT_EQ(reports(), 0U);
}

TEST_F(HeapOrderTest, EvictionLetsTheReaderOfFreeMemoryBesideABlockFinishBeforeItUnmaps) {
  const auto evicted = allocate(Bytes{kSize / 2});
  const auto beside = allocate(Bytes{kSize / 2});
  EXPECT_EQ(table_.MemcpyHtoDAsync(beside.address(), old_->data(), kSize / 2, main_.handle()),
            CUDA_SUCCESS);
  read_on_side(beside, kSize / 2);
  heap_->add_fence(beside, timeline(table_).mark().value());
  free(beside);
  const std::array blocks = {evicted};

  EXPECT_EQ(heap_->evict(blocks).value(), Bytes{kSize});
  EXPECT_EQ(out_->first(), 11);
}

}  // namespace
}  // namespace spillway
