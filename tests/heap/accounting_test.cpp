// SPDX-License-Identifier: Apache-2.0
#include "allocator/heap/accounting.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <barrier>
#include <map>
#include <random>
#include <thread>
#include <vector>

namespace spillway {
namespace {

using namespace literals;

/// A number and the most that it has been, kept in the plainest way.
struct Plain {
  std::uint64_t now = 0;
  std::uint64_t peak = 0;

  void add(std::uint64_t count) {
    now += count;
    peak = std::max(peak, now);
  }
};

/// Accounting with some accounts, and beside them the same kept in the plainest way.
class AccountingTest : public testing::Test {
 protected:
  struct Block {
    std::size_t account = 0;
    TagId tag = TagId::kUntagged;
    Bytes size;
    Bytes requested;
  };

  AccountingTest() {
    for (std::size_t i = 0; i < accounts_.size(); ++i)
      accounts_.at(i) = &accounting_.account_of(reinterpret_cast<CUstream>(i));
  }

  void hand_out(const Block& block) {
    accounts_.at(block.account)->hand_out(block.tag, block.size, block.requested);
    allocated_.add(block.size.count());
    requested_.add(block.requested.count());
    count_.add(1);
    tags_[block.tag].add(block.size.count());
    blocks_.push_back(block);
  }

  void take_back(std::size_t index) {
    const Block block = blocks_.at(index);
    accounts_.at(block.account)->take_back(block.tag, block.size, block.requested);
    allocated_.now -= block.size.count();
    requested_.now -= block.requested.count();
    --count_.now;
    tags_[block.tag].now -= block.size.count();
    blocks_[index] = blocks_.back();
    blocks_.pop_back();
  }

  void retag(std::size_t index, TagId tag) {
    Block& block = blocks_.at(index);
    accounts_.at(block.account)->retag(block.tag, tag, block.size);
    tags_[block.tag].now -= block.size.count();
    tags_[tag].add(block.size.count());
    block.tag = tag;
  }

  void pass(std::uint64_t bytes, TagId tag) {
    accounting_.passed({bytes, bytes, 1, {{tag, bytes}}});
    allocated_.peak = std::max(allocated_.peak, allocated_.now + bytes);
    requested_.peak = std::max(requested_.peak, requested_.now + bytes);
    count_.peak = std::max(count_.peak, count_.now + 1);
    tags_[tag].peak = std::max(tags_[tag].peak, tags_[tag].now + bytes);
  }

  void reset_peaks() {
    accounting_.reset_peaks();
    for (Plain* const plain : {&allocated_, &requested_, &count_})
      plain->peak = plain->now;
    for (auto& [tag, plain] : tags_)
      plain.peak = plain.now;
  }

  void expect_equal() {
    HeapStats stats;
    accounting_.read(stats);
    EXPECT_EQ(stats.allocated.count(), allocated_.now);
    EXPECT_EQ(stats.allocated_peak.count(), allocated_.peak);
    EXPECT_EQ(stats.requested.count(), requested_.now);
    EXPECT_EQ(stats.requested_peak.count(), requested_.peak);
    EXPECT_EQ(stats.allocated_blocks, count_.now);
    EXPECT_EQ(stats.allocated_blocks_peak, count_.peak);
    for (const HeapTagInfo& tag : accounting_.tags()) {
      EXPECT_EQ(tag.allocated.count(), tags_[tag.tag].now);
      EXPECT_EQ(tag.allocated_peak.count(), tags_[tag.tag].peak);
      EXPECT_EQ(tag.blocks, std::count_if(blocks_.begin(), blocks_.end(), [&](const Block& block) {
                  return block.tag == tag.tag;
                }));
    }
  }

  Accounting accounting_{HeapOptions{}};
  std::array<Account*, 5> accounts_{};
  std::vector<Block> blocks_;
  Plain allocated_;
  Plain requested_;
  Plain count_;
  std::map<TagId, Plain> tags_;
};

TEST_F(AccountingTest, PeaksOfSeveralAccountsAreThoseOfTheirSumAtEachTime) {
  const std::uint64_t seed = std::random_device()();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937_64 random(seed);
  std::uint64_t goal = 0;
  for (int i = 0; i < 100'000; ++i) {
    if (i % 512 == 0) goal = random() % 64;  // grows and shrinks, in turn in each account
    const bool grow = blocks_.empty() || random() % 64 < goal;
    const auto tag = static_cast<TagId>(random() % 4 * 300);
    if (random() % 32 == 0 && !blocks_.empty()) {
      retag(random() % blocks_.size(), tag);
    } else if (grow) {
      const Bytes size{512 * (1 + random() % 4096)};
      hand_out({random() % (1 + goal % accounts_.size()), tag, size, size - Bytes{random() % 512}});
    } else {
      take_back(random() % blocks_.size());
    }
    if (random() % 1024 == 0) pass(random() % (8_MiB).count(), tag);
    if (random() % 4096 == 0) reset_peaks();
    // Reading must not be what keeps them right.
    if (random() % 64 == 0) expect_equal();
    if (HasFailure()) return;
  }
  expect_equal();
}

TEST_F(AccountingTest, BlocksAllocatedAtDifferentTimesAreNoPeakTogether) {
  for (int i = 0; i < 100; ++i) {
    hand_out({static_cast<std::size_t>(i) % accounts_.size(), TagId{7}, 1_MiB, 1_MiB});
    take_back(0);
  }
  expect_equal();
  EXPECT_EQ(allocated_.peak, (1_MiB).count());
}

TEST_F(AccountingTest, AnAccountUsesWhatAnotherLeaves) {
  hand_out({0, TagId{1}, 64_MiB, 64_MiB});
  take_back(0);
  for (int i = 0; i < 64; ++i)
    hand_out({1, TagId{1}, 1_MiB, 1_MiB});
  expect_equal();
  hand_out({2, TagId{1}, 1_MiB, 1_MiB});
  expect_equal();
}

TEST_F(AccountingTest, ThreadsThatTakeTurnsHaveOneBlockAtATimeForReadersToo) {
  // No sum of what was true at two times is a peak.
  std::atomic<int> turn{0};
  std::vector<std::thread> threads;
  for (std::size_t number = 0; number < 2; ++number) {
    threads.emplace_back([&, number] {
      for (int i = 0; i < 2000; ++i) {
        while (turn.load() % 2 != static_cast<int>(number))
          std::this_thread::yield();
        accounts_.at(number)->hand_out(TagId{1}, 1_MiB, 1_MiB);
        accounts_.at(number)->take_back(TagId{1}, 1_MiB, 1_MiB);
        ++turn;
      }
    });
  }
  HeapStats stats;
  while (turn.load() < 4000) {
    static_cast<void>(accounting_.tags());
    accounting_.read(stats);
    std::this_thread::yield();
  }
  for (std::thread& thread : threads)
    thread.join();
  allocated_.peak = requested_.peak = tags_[TagId{1}].peak = (1_MiB).count();
  count_.peak = 1;
  expect_equal();
}

TEST_F(AccountingTest, ThePeakIsTheSumOverThreadsAtOneTime) {
  constexpr int kRounds = 200;
  std::barrier together(static_cast<std::ptrdiff_t>(accounts_.size()));
  std::vector<std::thread> threads;
  for (Account* const account : accounts_) {
    threads.emplace_back([account, &together] {
      for (int round = 0; round < kRounds; ++round) {
        account->hand_out(TagId{1}, 1_MiB, 1_MiB);
        together.arrive_and_wait();
        account->take_back(TagId{1}, 1_MiB, 1_MiB);
        together.arrive_and_wait();
      }
    });
  }
  for (std::thread& thread : threads)
    thread.join();
  const std::uint64_t all = accounts_.size() * (1_MiB).count();
  allocated_.peak = requested_.peak = tags_[TagId{1}].peak = all;
  count_.peak = accounts_.size();
  expect_equal();
}

TEST_F(AccountingTest, ThePeakOfConcurrentThreadsLiesBetweenOneThreadAndAllThreads) {
  constexpr std::uint64_t kMax = 16;
  std::vector<std::thread> threads;
  for (Account* const account : accounts_) {
    threads.emplace_back([account] {
      for (int round = 0; round < 500; ++round) {
        for (std::uint64_t i = 0; i < kMax; ++i)
          account->hand_out(TagId{1}, 1_MiB, 1_MiB);
        for (std::uint64_t i = 0; i < kMax; ++i)
          account->take_back(TagId{1}, 1_MiB, 1_MiB);
      }
    });
  }
  for (int i = 0; i < 100; ++i) {
    HeapStats stats;
    accounting_.read(stats);
    EXPECT_LE(stats.allocated, stats.allocated_peak);
  }
  for (std::thread& thread : threads)
    thread.join();
  HeapStats stats;
  accounting_.read(stats);
  EXPECT_EQ(stats.allocated, Bytes{});
  EXPECT_EQ(stats.allocated_blocks, 0U);
  EXPECT_GE(stats.allocated_blocks_peak, kMax);
  EXPECT_LE(stats.allocated_blocks_peak, kMax * accounts_.size());
  EXPECT_GE(stats.allocated_peak, Bytes{kMax * (1_MiB).count()});
  EXPECT_LE(stats.allocated_peak, Bytes{kMax * accounts_.size() * (1_MiB).count()});
}

}  // namespace
}  // namespace spillway
