// SPDX-License-Identifier: Apache-2.0
// Random steps under a target, on a heap that replays the ones that repeat. TEST_SEED sets the
// seed, HEAPS how many heaps.
#include "tests/heap/heap_fixture.h"
#include "tests/support/setting.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdio>
#include <iterator>
#include <map>
#include <random>
#include <string>
#include <utility>
#include <vector>

namespace spillway {
namespace {

/// Every block has its own value at both ends and at 64 KiB intervals, so that two blocks with
/// common memory, or a view of the wrong pages, change a value.
class TargetModelTest : public HeapTest {
 protected:
  static constexpr int kSteps = 40;  // of one heap
  static constexpr std::uint64_t kRequests = 24;

  struct Live {
    Bytes size;
    std::uint64_t value;
    int dies = 0;  // the step at whose beginning the block is freed at the latest
    bool fenced = false;
    bool evicted = false;
  };

  using Blocks = std::map<driver::DevicePtr, Live>;

  /// One request of a repeating step.
  struct Scripted {
    Bytes size;
    std::uint64_t lives;  // requests until it is freed
    bool next_step;       // its block is freed in the next step instead
    bool fenced;          // a copy uses the block when it is freed
  };

  /// Half of the scripts have blocks of whole granules only, which a plan may place in pages that
  /// are not adjacent.
  static std::vector<Scripted> script_of(std::uint64_t seed) {
    constexpr std::array<std::uint64_t, 6> kLargest = {
        4096, 128 << 10, 1 << 20, 3 << 20, 6 << 20, 6 << 20};
    std::mt19937_64 random(seed);
    const bool whole = random() % 2 == 0;
    std::vector<Scripted> script;
    for (std::uint64_t i = 0; i < kRequests; ++i) {
      const Bytes some{1 + random() % kLargest.at(random() % kLargest.size())};
      const Bytes size = whole ? Bytes{(1 + random() % 3) << 21U} : some;
      script.push_back({size, 1 + random() % 6, random() % 12 == 0, random() % 5 == 0});
    }
    return script;
  }

  /// Most bytes that are allocated at one time in the script.
  static Bytes peak_of(const std::vector<Scripted>& script) {
    Bytes peak;
    for (std::size_t now = 0; now < script.size(); ++now) {
      Bytes allocated;
      for (std::size_t i = 0; i < script.size(); ++i) {
        const bool here = i <= now && now < i + script[i].lives;
        const bool kept = script[i].next_step && (i <= now || now * 2 < script.size());
        if (here || kept) allocated += script[i].size;
      }
      peak = std::max(peak, allocated);
    }
    return peak;
  }

  void steps_of_one_heap() {
    HeapOptions options;
    options.replay = random_() % 2 == 0;
    make_heap(options);
    std::vector<Scripted> script = script_of(random_());
    Bytes target = some_target(script);
    const bool budget = random_() % 3 == 0;
    for (step_ = 0; step_ < kSteps && !HasFatalFailure(); ++step_) {
      if (random_() % 20 == 0) script = script_of(random_());
      if (random_() % 12 == 0) target = some_target(script);
      if (random_() % 24 != 0) heap_->placement().set_target(target);
      if (budget) heap_->limits().set_budget(target);
      if (random_() % 8 == 0) heap_->placement().begin_optimizer_phase();
      if (random_() % 16 == 0) heap_->placement().set_streaming(random_() % 3 == 0);
      run(script, random_() % 4 == 0 ? 12 : 1U << 20U);
      heap_->placement().end_step();
      ASSERT_EQ(heap_->view().check(), "") << where();
    }
    replayed_ += heap_->stats().replayed_allocations;
    differed_ += heap_->stats().replay_mismatches;
    while (!blocks_.empty() && !HasFatalFailure())
      remove(blocks_.begin());
    heap_->trim_sync();
    ASSERT_EQ(heap_->stats().reserved, 0_B) << where() << "; " << heap_->view().describe();
    ASSERT_EQ(heap_->view().check(), "") << where();
  }

  /// A step that differs from the script at about every `odd`-th request.
  void run(const std::vector<Scripted>& script, std::uint64_t odd) {
    std::vector<std::vector<driver::DevicePtr>> dying(script.size() + 16);
    for (std::size_t i = 0; i < script.size() && !HasFatalFailure(); ++i) {
      free_old(i * 2 == script.size());
      const bool differs = random_() % odd == 0;
      const std::uint64_t how = random_() % 4;
      if (differs && how == 0) continue;  // one request less
      if (differs && how == 1) {          // some more
        for (std::uint64_t more = 1 + random_() % 3; more > 0; --more)
          put(dying[i + 1 + random_() % 8], add({Bytes{1 + random_() % (4 << 20)}, 0, step_ + 1}));
      }
      const Scripted& request = script[i];
      const Bytes size = differs && how == 2 ? request.size + 1_MiB : request.size;
      const bool outlives = differs && how == 3;
      const int dies = step_ + 1 + (outlives ? static_cast<int>(random_() % 12) : 0);
      const auto at = add({size, 0, dies, request.fenced});
      if (!request.next_step && !outlives) put(dying[i + request.lives], at);
      if (random_() % odd == 0) one_other_call();
      for (const driver::DevicePtr dead : dying[i])
        remove(dead);
    }
    for (std::size_t i = script.size(); i < dying.size() && !HasFatalFailure(); ++i)
      for (const driver::DevicePtr dead : dying[i])
        remove(dead);
  }

  static void put(std::vector<driver::DevicePtr>& all, driver::DevicePtr at) {
    if (at != driver::DevicePtr{}) all.push_back(at);
  }

  /// Half of a step passes before the blocks of the earlier ones are freed.
  void free_old(bool now) {
    for (auto block = blocks_.begin(); now && block != blocks_.end();) {
      const auto next = std::next(block);
      if (block->second.dies <= step_) remove(block);
      block = next;
    }
  }

  void one_other_call() {
    const std::uint64_t action = random_() % 8;
    if (action == 0) {
      heap_->trim_sync();
    } else if (action < 3) {
      const auto other = heap_->allocate(1_MiB, side_, TagId::kUntagged);
      if (other.ok()) heap_->free(other.value());
    } else if (!blocks_.empty()) {
      const auto block =
          std::next(blocks_.begin(), static_cast<std::ptrdiff_t>(random_() % blocks_.size()));
      if (action < 5) {
        heap_->record_use(block->first, side_);
      } else {
        evict_or_restore(block);
      }
    }
  }

  void evict_or_restore(Blocks::iterator block) {
    const std::vector<driver::DevicePtr> one{block->first};
    Live& live = block->second;
    if (!live.evicted) {
      expect_value(*block);
      for (const CUstream stream : streams_)
        table_.StreamSynchronize(stream);
      ASSERT_TRUE(heap_->evict(one).ok()) << where();
      live.evicted = true;
    } else if (heap_->restore(one).ok()) {
      live.evicted = false;
      write(*block);
    }
  }

  /// Null if a budget refuses it.
  driver::DevicePtr add(Live live) {
    live.value = ++values_;
    const bool streamed = heap_->placement().streaming() && random_() % 2 == 0;
    const BlockUse use = streamed ? BlockUse::kStreamed : BlockUse::kAny;
    const auto made = heap_->allocate(live.size, main_, TagId{1}, PoolId::kShared, use);
    if (!made.ok()) {
      EXPECT_EQ(made.status().code(), Code::kOutOfDeviceMemory) << where();
      ++refused_;
      return {};
    }
    const auto [block, fresh] = blocks_.emplace(made.value(), live);
    EXPECT_TRUE(fresh) << where();
    write(*block);
    return block->first;
  }

  void remove(driver::DevicePtr at) { remove(blocks_.find(at)); }

  void remove(Blocks::iterator block) {
    expect_value(*block);
    if (block->second.fenced && !block->second.evicted) {
      heap_->add_fence(block->first, copies_[random_() % 2]->mark().value());
    }
    ASSERT_TRUE(heap_->free(block->first)) << where();
    blocks_.erase(block);
  }

  template <typename See>
  static void each_word(const Blocks::value_type& block, See see) {
    auto* const bytes = static_cast<unsigned char*>(block.first.raw());
    const std::uint64_t size = block.second.size.rounded_up(512_B).count();
    for (std::uint64_t at = 0; at < size; at += 64 << 10)
      see(*reinterpret_cast<std::uint64_t*>(bytes + at), at);
    see(*reinterpret_cast<std::uint64_t*>(bytes + size - sizeof(std::uint64_t)), size);
  }

  static void write(const Blocks::value_type& block) {
    each_word(block, [&](std::uint64_t& word, std::uint64_t at) {
      word = block.second.value << 32U | at;
    });
  }

  void expect_value(const Blocks::value_type& block) {
    if (block.second.evicted) return;
    bool same = true;
    each_word(block, [&](const std::uint64_t& word, std::uint64_t at) {
      same = same && word == (block.second.value << 32U | at);
    });
    ASSERT_TRUE(same) << where();
  }

  Bytes some_target(const std::vector<Scripted>& script) {
    return peak_of(script) + Bytes{(random_() % 2) * (random_() % 24) << 20U};
  }

  [[nodiscard]] std::string where() const {
    return "TEST_SEED=" + std::to_string(seed_) + ", step " + std::to_string(step_);
  }

  const std::uint64_t seed_ = setting("TEST_SEED", std::random_device{}());
  std::mt19937_64 random_{seed_};
  std::array<driver::Timeline*, 2> copies_{};  // one that no query sees to pass
  Blocks blocks_;
  int step_ = 0;
  std::uint64_t values_ = 0;
  std::uint64_t refused_ = 0;
  std::uint64_t replayed_ = 0;
  std::uint64_t differed_ = 0;
};

TEST_F(TargetModelTest, StepsThatMostlyRepeatKeepTheirBytesUnderATarget) {
  std::printf("TEST_SEED=%llu\n", static_cast<unsigned long long>(seed_));
  copies_ = {&timeline(table_), &timeline(stuck_table_)};
  const std::uint64_t heaps = setting("HEAPS", 16);
  for (std::uint64_t i = 0; i < heaps && !HasFatalFailure(); ++i)
    steps_of_one_heap();

  EXPECT_GT(replayed_, heaps * 50);
  EXPECT_GT(differed_, heaps);
}

}  // namespace
}  // namespace spillway
