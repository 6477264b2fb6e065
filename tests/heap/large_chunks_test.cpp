// SPDX-License-Identifier: Apache-2.0
// Moves of chunks that are larger than what is asked for: on a device with much memory.
#include "emulator/emulator.h"
#include "tests/heap/heap_fixture.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <random>
#include <utility>
#include <vector>

namespace spillway {
namespace {

/// Runs with SPILLWAY_EMULATE_MEMORY=64GiB: chunks have up to 4 MiB.
class LargeChunksTest : public HeapTest {
 protected:
  void SetUp() override {
    HeapTest::SetUp();
    most_ = 0;
    room_ = 256_MiB;
    table_.MemCreate = [](CUmemGenericAllocationHandle* chunk,
                          std::size_t bytes,
                          const CUmemAllocationProp* properties,
                          unsigned long long flags) {
      if (spillway_emulator_used(0) + bytes > room_.count()) return CUDA_ERROR_OUT_OF_MEMORY;
      const CUresult result = driver::api().value()->MemCreate(chunk, bytes, properties, flags);
      most_ = std::max(most_, spillway_emulator_used(0));
      return result;
    };
    table_.EventQuery = [](CUevent event) {
      return random_() % 3 != 0 ? CUDA_ERROR_NOT_READY : driver::api().value()->EventQuery(event);
    };
  }

  /// Blocks of this size until the device has no room for another one.
  std::vector<driver::DevicePtr> fill(Bytes size) {
    std::vector<driver::DevicePtr> blocks;
    for (auto block = heap_->allocate(size, side_, TagId::kUntagged); block.ok();
         block = heap_->allocate(size, side_, TagId::kUntagged)) {
      blocks.push_back(block.value());
      allocated_.push_back(block.value());
    }
    return blocks;
  }

  static inline Bytes room_;  // of the device
  static inline std::uint64_t most_ = 0;
  static inline std::mt19937_64 random_{1};
};

TEST_F(LargeChunksTest, AFullDeviceReleasesCachedChunksOfOtherSizes) {
  constexpr std::uint64_t kPlenty = std::uint64_t{512} << 30U;
  for (const Bytes target : {0_B, Bytes{kPlenty}}) {
    for (const auto& [cached, wanted] : {std::pair(2_MiB, 16_MiB), std::pair(16_MiB, 2_MiB)}) {
      make_heap({});
      heap_->placement().set_target(target);
      const auto blocks = fill(cached);
      fill(2_MiB);
      for (std::size_t each = 0; each < blocks.size() / 2; ++each)
        free(blocks[each]);

      EXPECT_NE(allocate(wanted), driver::DevicePtr{}) << target.count();
    }
  }
}

TEST_F(LargeChunksTest, ChunksThatAreTooLargeForTheTargetAreReleased) {
  std::vector<driver::DevicePtr> holes;
  for (int each = 0; each < 2; ++each) {
    holes.push_back(allocate(16_MiB));
    allocate(2_MiB);
  }
  for (const driver::DevicePtr at : holes)
    free(at);
  const Bytes target = heap_->stats().reserved;
  heap_->placement().set_target(target);

  allocate(20_MiB);

  EXPECT_LE(heap_->stats().reserved, target);
}

TEST_F(LargeChunksTest, TheBudgetHoldsAndWhatIsReservedExistsInRandomCalls) {
  for (unsigned seed = 1; seed <= 40; ++seed) {
    random_.seed(seed);
    std::mt19937_64 random(seed);
    make_heap({});
    const auto before = spillway_emulator_used(0);
    const Bytes budget{(40 + random() % 60) << 20U};
    most_ = 0;
    for (int call = 0; call < 400; ++call) {
      if (call % 40 == 0) {
        heap_->placement().set_target(budget);
        heap_->limits().set_budget(budget);
      }
      if (random() % 50 == 0) heap_->trim_sync();
      if (random() % 5 < 3) {
        const Bytes size{(1 + random() % 20) << 20U};
        const auto block = heap_->allocate(size, random() % 3 ? main_ : side_, TagId::kUntagged);
        if (block.ok()) allocated_.push_back(block.value());
      } else if (!allocated_.empty()) {
        const driver::DevicePtr at = allocated_[random() % allocated_.size()];
        if (random() % 3 == 0) heap_->add_fence(at, passed_fence());
        free(at);
      }
      const HeapStats stats = heap_->stats();
      ASSERT_LE(most_, before + budget.count()) << seed << ", call " << call;
      ASSERT_EQ(spillway_emulator_used(0) - before, stats.reserved.count()) << seed;
      ASSERT_GE(stats.reserved_peak, stats.reserved) << seed;
      ASSERT_GE(heap_->placement().most_reserved(), stats.reserved) << seed;
      ASSERT_EQ(heap_->view().check(), "") << seed;
    }
    for (const driver::DevicePtr at : std::exchange(allocated_, {}))
      heap_->free(at);
    heap_->trim_sync();
    ASSERT_EQ(heap_->stats().reserved, 0_B) << seed;
  }
}

/// Runs with SPILLWAY_EMULATE_SCHEDULE=late and SPILLWAY_EMULATE_CHECK=1 too: copies run only when
/// something needs them, and unordered ones are named.
class LargeChunksOrderTest : public HeapTest {
 protected:
  static constexpr std::size_t kSize = std::size_t{1} << 20U;
  static constexpr std::size_t kReads = 64;
  static constexpr std::size_t kHostBytes = (256 + kReads) * kSize;
  static constexpr Bytes kBeside{std::uint64_t{4} << 30U};
  static constexpr Bytes kTarget{std::uint64_t{5} << 30U};

  struct Written {
    driver::DevicePtr at;
    Bytes size;
    bool on_main;
    int value;
  };

  void SetUp() override {
    HeapTest::SetUp();
    spillway_emulator_clear_races();
    reports_ = spillway_emulator_count("unordered");
    host_ = static_cast<unsigned char*>(std::aligned_alloc(4096, kHostBytes));
    ASSERT_EQ(table_.MemHostRegister(host_, kHostBytes, 0), CUDA_SUCCESS);
    for (int value = 0; value < 256; ++value)
      std::memset(host_ + static_cast<std::size_t>(value) * kSize, value, kSize);
  }

  void TearDown() override {
    HeapTest::TearDown();
    table_.MemHostUnregister(host_);
    std::free(host_);
  }

  [[nodiscard]] driver::Stream stream(bool main) const { return main ? main_ : side_; }

  void write(driver::DevicePtr at, int value, driver::Stream on) {
    EXPECT_EQ(
        table_.MemcpyHtoDAsync(
            at.address(), host_ + static_cast<std::size_t>(value) * kSize, kSize, on.handle()),
        CUDA_SUCCESS);
  }

  void read(driver::DevicePtr at, int expected, driver::Stream on) {
    if (expected_.size() == kReads) return;
    unsigned char* const to = host_ + (256 + expected_.size()) * kSize;
    EXPECT_EQ(table_.MemcpyDtoHAsync(to, at.address(), kSize, on.handle()), CUDA_SUCCESS);
    expected_.push_back(expected);
  }

  /// Makes a chunk of 4 MiB spare that `main_` still reads.
  void leave_spare_chunk() {
    heap_->placement().set_target(kTarget);  // chunks have up to 4 MiB
    allocate(kBeside);
    std::vector<driver::DevicePtr> holes;
    for (int each = 0; each < 2; ++each) {
      holes.push_back(allocate(4_MiB));
      allocate(4_MiB);
    }
    for (const driver::DevicePtr at : holes) {
      write(at, 11, main_);
      read(at, 11, main_);
    }
    for (const driver::DevicePtr at : holes)
      free(at);
    heap_->placement().set_target(heap_->stats().reserved);
    heap_->limits().set_budget(heap_->stats().reserved + 6_MiB);
    allocate(6_MiB);  // in the other one and a new one of 2 MiB: there is no room for 4
    heap_->placement().set_target(kTarget);
    chunks_ = heap_->stats().driver_allocations;
  }

  void expect_what_was_written() {
    for (const driver::Stream each : {main_, side_})
      table_.StreamSynchronize(each.handle());
    for (std::size_t each = 0; each < expected_.size(); ++each) {
      const unsigned char* const got = host_ + (256 + each) * kSize;
      EXPECT_EQ(got[0], expected_[each]);
      EXPECT_EQ(got[kSize - 1], expected_[each]);
    }
    expected_.clear();
    EXPECT_EQ(spillway_emulator_count("unordered"), reports_) << spillway_emulator_race(0);
  }

  unsigned char* host_ = nullptr;
  std::vector<int> expected_;
  std::uint64_t chunks_ = 0;  // created before a test begins
  std::uint64_t reports_ = 0;
};

TEST_F(LargeChunksOrderTest, AnotherStreamUsesASpareChunkAfterTheOneThatItHasLeft) {
  leave_spare_chunk();

  write(allocate(4_MiB, side_), 22, side_);

  EXPECT_EQ(heap_->stats().driver_allocations, chunks_);
  expect_what_was_written();
}

TEST_F(LargeChunksOrderTest, ASpareChunkInUseIsReleasedWhereItExceedsTheTarget) {
  leave_spare_chunk();
  const Bytes target = heap_->stats().reserved - 4_MiB;

  heap_->placement().set_target(target);

  EXPECT_LE(heap_->stats().reserved, target);
}

TEST_F(LargeChunksOrderTest, SoDoesAThirdOneIfTheSecondCouldNotMapIt) {
  leave_spare_chunk();
  table_.MemSetAccess = [](CUdeviceptr, std::size_t, const CUmemAccessDesc*, std::size_t) {
    return CUDA_ERROR_UNKNOWN;
  };
  EXPECT_FALSE(heap_->allocate(4_MiB, side_, TagId::kUntagged).ok());
  table_.MemSetAccess = driver::api().value()->MemSetAccess;
  const driver::Stream third = make_stream();

  write(allocate(4_MiB, third), 22, third);

  EXPECT_EQ(heap_->stats().driver_allocations, chunks_);
  expect_what_was_written();
}

TEST_F(LargeChunksOrderTest, RandomCallsOnTwoStreamsStayInOrder) {
  for (unsigned seed = 1; seed <= 16; ++seed) {
    std::mt19937_64 random(seed);
    std::vector<Written> blocks;
    heap_->placement().set_target(kTarget);
    allocate(kBeside);
    const Bytes budget = kBeside + Bytes{(30 + random() % 60) << 20U};
    int value = 0;
    for (int call = 0; call < 150; ++call) {
      if (call % 40 == 10) heap_->placement().set_target(budget);
      if (call % 40 == 25) heap_->placement().set_target(heap_->stats().reserved);
      if (random() % 5 < 3) {
        const Bytes size{(1 + random() % 12) << 20U};
        const bool on_main = random() % 3 != 0;
        value = 1 + (value + 1) % 250;
        const driver::DevicePtr at = allocate(size, stream(on_main));
        write(at, value, stream(on_main));
        write(at + (size - 1_MiB), value, stream(on_main));
        blocks.push_back({at, size, on_main, value});
      } else if (!blocks.empty()) {
        std::swap(blocks[random() % blocks.size()], blocks.back());
        const Written block = blocks.back();
        blocks.pop_back();
        bool reads_on_main = block.on_main;
        if (random() % 3 == 0) {
          reads_on_main = !block.on_main;
          timelines_.push_back(std::make_unique<driver::Timeline>(device_, stream(block.on_main)));
          const driver::Fence written = timelines_.back()->mark().value();
          ASSERT_TRUE(driver::Timeline::wait(stream(reads_on_main), written).ok());
          heap_->record_use(block.at, stream(reads_on_main));
        }
        const Bytes place = random() % 2 ? block.size - 1_MiB : 0_B;
        read(block.at + place, block.value, stream(reads_on_main));
        free(block.at);
      }
    }
    expect_what_was_written();
    ASSERT_EQ(heap_->view().check(), "") << seed;
    make_heap({});
    timelines_.clear();
  }
}

}  // namespace
}  // namespace spillway
