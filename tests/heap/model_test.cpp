// SPDX-License-Identifier: Apache-2.0
// Many random calls against a model of what the heap must do. TEST_SEED sets the seed,
// OPERATIONS how many calls.
#include "tests/heap/heap_fixture.h"
#include "tests/support/setting.h"

#include <array>
#include <cstdio>
#include <iterator>
#include <map>
#include <random>
#include <string>
#include <utility>
#include <vector>

namespace spillway {
namespace {

/// A driver some of whose calls fail, and whose events pass late.
class Unreliable {
 public:
  static void install(driver::Api& table) {
    real_ = driver::api().value();
    table.MemCreate = [](auto... args) {
      const CUresult result = fails() ? CUDA_ERROR_OUT_OF_MEMORY : real_->MemCreate(args...);
      undoing_ = result != CUDA_SUCCESS;
      return result;
    };
    table.MemMap = [](auto... args) {
      const CUresult result = fails() ? kError : real_->MemMap(args...);
      undoing_ = result != CUDA_SUCCESS;
      return result;
    };
    table.MemSetAccess = [](auto... args) {
      const CUresult result = fails() ? kError : real_->MemSetAccess(args...);
      undoing_ = result != CUDA_SUCCESS;
      return result;
    };
    // What undoes a failed mapping works: otherwise memory would get stuck until none is left.
    table.MemUnmap = [](auto... args) {
      return !undoing_ && fails() ? kError : real_->MemUnmap(args...);
    };
    table.EventRecord = [](auto... args) {
      return fails() ? kError : real_->EventRecord(args...);
    };
    table.StreamWaitEvent = [](auto... args) {
      return fails() ? kError : real_->StreamWaitEvent(args...);
    };
    table.EventSynchronize = [](auto... args) {
      return fails() ? kError : real_->EventSynchronize(args...);
    };
    table.EventQuery = [](auto... args) {
      return random_() % 3 == 0 ? real_->EventQuery(args...) : CUDA_ERROR_NOT_READY;
    };
  }

  static void seed(std::uint64_t seed) { random_.seed(seed); }

  inline static bool on = true;

 private:
  static constexpr CUresult kError = CUDA_ERROR_UNKNOWN;

  static bool fails() { return on && random_() % 97 == 0; }

  inline static const driver::Api* real_ = nullptr;
  inline static bool undoing_ = false;
  inline static std::mt19937_64 random_;
};

class HeapModelTest : public HeapTest {
 protected:
  struct Live {
    Bytes size;  // rounded
    Bytes requested;
    TagId tag;
    PoolId pool;
    bool evicted = false;
    unsigned char value = 0;
  };

  using Blocks = std::map<driver::DevicePtr, Live>;

  void SetUp() override {
    HeapTest::SetUp();
    random_.seed(seed_);
    Unreliable::seed(seed_ + 1);
    Unreliable::install(table_);
    streams_of_test_ = {main_, side_, make_stream()};
    RecordProperty("seed", std::to_string(seed_));
  }

  void TearDown() override {
    Unreliable::on = false;
    table_ = *driver::api().value();
    for (const auto& [at, allocated] : blocks_)
      heap_->free(at);
    HeapTest::TearDown();
    Unreliable::on = true;
  }

  void one_call() {
    const std::uint64_t action = random_() % 10'000;
    if (action < 4'600) {
      if (blocks_.size() < 500) add();
    } else if (action < 9'100) {
      remove();
    } else if (action < 9'500) {
      if (!blocks_.empty()) heap_->record_use(any()->first, stream());
    } else if (action < 9'900) {
      if (!blocks_.empty()) fence(any()->first);
    } else if (action < 9'960) {
      evict();
    } else if (action < 9'990) {
      restore();
    } else if (action < 9'995) {
      heap_->limits().set_limit(random_() % 2 == 0 ? 0_B : 120_MiB);
    } else if (action < 9'997) {
      heap_->placement().set_target(random_() % 2 == 0 ? 0_B : 100_MiB);
    } else {
      heap_->trim_sync();
    }
  }

  static Bytes some_size(std::mt19937_64& random) {
    constexpr std::array<std::uint64_t, 8> kLargest = {
        512, 4096, 4096, 16 << 10, 128 << 10, 300 << 10, 1 << 20, 12 << 20};
    const std::uint64_t largest = kLargest.at(random() % kLargest.size());
    return Bytes{1 + random() % largest};
  }

  void add() {
    const Bytes asked = some_size(random_);
    const Live allocated{asked.rounded_up(512_B),
                         asked,
                         static_cast<TagId>(random_() % 300),
                         static_cast<PoolId>(random_() % 8 == 0 ? 1 + random_() % 2 : 0),
                         false,
                         static_cast<unsigned char>(random_())};
    add(allocated, stream());
  }

  void add(const Live& allocated, driver::Stream stream) {
    const auto made = heap_->allocate(allocated.requested, stream, allocated.tag, allocated.pool);
    if (!made.ok()) {
      ++refused_;
      return;
    }
    latest_ = made.value();
    const driver::DevicePtr at = made.value();
    ASSERT_EQ(at.address() % 512, 0U);
    const auto [block, fresh] = blocks_.emplace(at, allocated);
    ASSERT_TRUE(fresh) << where();
    expect_apart(block);
    write(*block);
  }

  /// A block overlaps neither neighbor, nor shares a granule with one of another pool.
  void expect_apart(Blocks::iterator block) {
    const auto apart = [](const Blocks::value_type& left, const Blocks::value_type& right) {
      if (left.first + left.second.size > right.first) return false;
      const std::uint64_t last = (left.first + left.second.size).address() - 1;
      return left.second.pool == right.second.pool || last >> 21U != right.first.address() >> 21U;
    };
    if (block != blocks_.begin()) {
      ASSERT_TRUE(apart(*std::prev(block), *block)) << where();
    }
    if (std::next(block) != blocks_.end()) {
      ASSERT_TRUE(apart(*block, *std::next(block))) << where();
    }
  }

  void remove() {
    if (!blocks_.empty()) remove(any());
  }

  void remove(Blocks::iterator block) {
    expect_value(*block);
    ASSERT_TRUE(heap_->free(block->first)) << where();
    ASSERT_FALSE(heap_->free(block->first)) << where();
    blocks_.erase(block);
  }

  void fence(driver::DevicePtr at) {
    const auto point = copies_->mark();
    if (point.ok()) heap_->add_fence(at, point.value());
  }

  void evict() {
    const std::vector<driver::DevicePtr> some = several();
    // The device must be done with them.
    const bool on = std::exchange(Unreliable::on, false);
    for (const CUstream stream : streams_)
      table_.StreamSynchronize(stream);
    Unreliable::on = on;
    ASSERT_TRUE(heap_->evict(some).ok());
    for (const driver::DevicePtr at : some)
      blocks_.at(at).evicted = true;
  }

  void restore() {
    std::vector<driver::DevicePtr> some = several();
    for (const auto& [at, allocated] : blocks_) {
      if (allocated.evicted && some.size() < 12) some.push_back(at);
    }
    if (!heap_->restore(some).ok()) {
      ++refused_;
      return;
    }
    for (const driver::DevicePtr at : some) {
      Live& allocated = blocks_.at(at);
      if (allocated.evicted) {
        allocated.evicted = false;
        write(*blocks_.find(at));
      }
      expect_value(*blocks_.find(at));
    }
  }

  std::vector<driver::DevicePtr> several() {
    std::vector<driver::DevicePtr> some;
    for (std::uint64_t i = random_() % 8; i > 0 && !blocks_.empty(); --i)
      some.push_back(any()->first);
    return some;
  }

  Blocks::iterator any() {
    return std::next(blocks_.begin(), static_cast<std::ptrdiff_t>(random_() % blocks_.size()));
  }

  driver::Stream stream() { return streams_of_test_.at(random_() % streams_of_test_.size()); }

  static void write(const Blocks::value_type& block) {
    auto* const bytes = static_cast<unsigned char*>(block.first.raw());
    bytes[0] = bytes[block.second.requested.count() - 1] = block.second.value;
  }

  void expect_value(const Blocks::value_type& block) {
    if (block.second.evicted) return;
    const auto* const bytes = static_cast<const unsigned char*>(block.first.raw());
    ASSERT_EQ(bytes[0], block.second.value) << where();
    ASSERT_EQ(bytes[block.second.requested.count() - 1], block.second.value) << where();
  }

  void expect_accounting() {
    std::map<TagId, HeapTagInfo> tags;
    Bytes evicted;
    Bytes allocated_bytes;
    for (const auto& [at, allocated] : blocks_) {
      HeapTagInfo& tag = tags[allocated.tag];
      tag.allocated += allocated.size;
      tag.requested += allocated.requested;
      ++tag.blocks;
      allocated_bytes += allocated.size;
      if (allocated.evicted) evicted += allocated.size;
    }
    const HeapStats stats = heap_->stats();
    ASSERT_EQ(stats.allocated, allocated_bytes) << where();
    ASSERT_EQ(stats.allocated_blocks, blocks_.size()) << where();
    ASSERT_EQ(stats.evicted, evicted) << where();
    for (const HeapTagInfo& info : heap_->view().tags()) {
      const HeapTagInfo& expected = tags[info.tag];
      ASSERT_EQ(info.allocated, expected.allocated) << where();
      ASSERT_EQ(info.requested, expected.requested) << where();
      ASSERT_EQ(info.blocks, expected.blocks) << where();
      ASSERT_GE(info.allocated_peak, info.allocated) << where();
    }
    ASSERT_EQ(heap_->view().check(), "") << where();
  }

  [[nodiscard]] std::string where() const {
    return "TEST_SEED=" + std::to_string(seed_) + ", call " + std::to_string(done_);
  }

  const std::uint64_t seed_ = setting("TEST_SEED", std::random_device{}());
  std::mt19937_64 random_;
  Blocks blocks_;
  std::vector<driver::Stream> streams_of_test_;
  driver::Timeline* copies_ = nullptr;
  std::uint64_t done_ = 0;
  std::uint64_t refused_ = 0;
  driver::DevicePtr latest_;  // block that was added
};

TEST_F(HeapModelTest, TheHeapMatchesTheModelInRandomCalls) {
  std::printf("TEST_SEED=%llu\n", static_cast<unsigned long long>(seed_));
  copies_ = &timeline(table_);
  for (const std::uint64_t most = setting("OPERATIONS", 200'000); done_ < most; ++done_) {
    one_call();
    if (done_ % 4096 == 0) expect_accounting();
    if (HasFatalFailure()) break;
  }
  EXPECT_GT(refused_, 0U);

  Unreliable::on = false;
  heap_->limits().set_limit(0_B);
  while (!blocks_.empty() && !HasFatalFailure())
    remove();
  heap_->release_pool(PoolId{1});
  heap_->release_pool(PoolId{2});
  heap_->trim_sync();
  EXPECT_EQ(heap_->stats().reserved, 0_B) << where() << "; " << heap_->view().describe();
  EXPECT_EQ(heap_->view().check(), "") << where();
}

/// The same with steps that mostly repeat, on a heap that replays them. Where memory runs out, a
/// heap makes no more plans: so there is a new one now and then.
class HeapModelStepsTest : public HeapModelTest {
 protected:
  static constexpr int kSteps = 100;  // of one heap

  void SetUp() override {
    HeapModelTest::SetUp();
    Unreliable::on = false;
  }

  void steps_of_one_heap() {
    HeapOptions options;
    options.replay = true;
    make_heap(options);
    const std::uint64_t usual = random_();
    for (int i = 0; i < kSteps && !HasFatalFailure(); ++i) {
      Unreliable::on = random_() % 40 == 0;
      step(random_() % 16 == 0 ? random_() : usual,
           std::uint64_t{random_() % 6 == 0 ? 24U : 1U << 20U});
      heap_->placement().end_step();
      if (random_() % 8 == 0) expect_accounting();
    }
    Unreliable::on = false;
    replayed_ += heap_->stats().replayed_allocations;
    differed_ += heap_->stats().replay_mismatches;
    heap_->limits().set_limit(0_B);
    while (!blocks_.empty() && !HasFatalFailure())
      remove();
    heap_->release_pool(PoolId{1});
    heap_->release_pool(PoolId{2});
    heap_->trim_sync();
    ASSERT_EQ(heap_->stats().reserved, 0_B) << where() << "; " << heap_->view().describe();
    ASSERT_EQ(heap_->view().check(), "") << where();
  }

  /// What `seed` makes of it, with any other call in between every `odd` ones or so.
  void step(std::uint64_t seed, std::uint64_t odd) {
    std::mt19937_64 script(seed);
    std::vector<driver::DevicePtr> mine;
    for (int i = 0; i < 64 && !HasFatalFailure(); ++i, ++done_) {
      const bool adds = mine.empty() || script() % 8 < 5;
      const Bytes asked = some_size(script);
      const std::uint64_t choice = script();
      if (adds) {
        latest_ = {};
        add({asked.rounded_up(512_B), asked, static_cast<TagId>(choice % 5), PoolId::kShared},
            main_);
        mine.push_back(latest_);
      } else {
        remove_mine(mine, choice % mine.size());
      }
      if (random_() % odd == 0) one_call();
    }
    while (!mine.empty() && !HasFatalFailure() && random_() % odd != 1)
      remove_mine(mine, mine.size() - 1);
  }

  void remove_mine(std::vector<driver::DevicePtr>& mine, std::uint64_t index) {
    const auto block = blocks_.find(mine[index]);
    if (block != blocks_.end()) remove(block);
    mine.erase(mine.begin() + static_cast<std::ptrdiff_t>(index));
  }

  std::uint64_t replayed_ = 0;
  std::uint64_t differed_ = 0;
};

TEST_F(HeapModelStepsTest, RepeatingStepsMatchTheModel) {
  std::printf("TEST_SEED=%llu\n", static_cast<unsigned long long>(seed_));
  copies_ = &timeline(table_);
  const std::uint64_t most = setting("OPERATIONS", 200'000) / 4;
  while (done_ < most && !HasFatalFailure())
    steps_of_one_heap();

  EXPECT_GT(replayed_, most / 50);
  EXPECT_GT(differed_, 0U);
}

}  // namespace
}  // namespace spillway
