// SPDX-License-Identifier: Apache-2.0
#include "allocator/transfer/host_arena.h"
#include "tests/heap/heap_fixture.h"

#include <unistd.h>

#include <array>
#include <filesystem>
#include <fstream>
#include <random>
#include <thread>

namespace spillway {
namespace {

/// Pieces that are made ahead of need, and budgets.
class ArenaGrowthTest : public HeapTest {
 protected:
  void SetUp() override {
    HeapTest::SetUp();
    std::filesystem::create_directories(folder_);
    options_.ahead = true;
    options_.ledger = folder_;
    make_arena();
  }

  void TearDown() override {
    out_.clear();
    arena_.reset();
    std::filesystem::remove_all(folder_);
    HeapTest::TearDown();
  }

  void make_arena() { arena_ = std::make_unique<HostArena>(device_, options_); }

  /// Keeps what it takes.
  Status take(Bytes size) {
    Result<HostSlot> slot = arena_->take(size);
    if (slot.ok()) out_.push_back(std::move(slot).value());
    return slot.status();
  }

  std::uint64_t refused(PinRefusal why) {
    return arena_->stats().refused.at(static_cast<std::size_t>(why));
  }

  const std::filesystem::path folder_ =
      std::filesystem::path(testing::TempDir()) / ("growth." + std::to_string(getpid()));
  PinnedOptions options_;
  std::unique_ptr<HostArena> arena_;
  std::vector<HostSlot> out_;
};

TEST_F(ArenaGrowthTest, PiecesGrowSoThatThereAreFew) {
  for (int each = 0; each < 300; ++each)
    ASSERT_TRUE(take(1_MiB).ok());

  EXPECT_LE(arena_->stats().registrations, 22U);
}

TEST_F(ArenaGrowthTest, AtMostAQuarterOfWhatIsInSlotsOrOnePieceIsPinnedBeside) {
  const unsigned seed = std::random_device{}();
  std::mt19937_64 random(seed);
  for (int each = 0; each < 80; ++each) {
    ASSERT_TRUE(take(Bytes{1 + random() % (random() % 8 == 0 ? 20000000 : 200000)}).ok());

    const HostArenaStats stats = arena_->stats();
    const Bytes slack = std::max(8_MiB, Bytes{stats.in_slots.count() / 4});
    ASSERT_LE(stats.registered, stats.in_slots + slack + 4_KiB) << "seed " << seed;
  }
}

TEST_F(ArenaGrowthTest, OnePieceNeedsNoThread) {
  ASSERT_TRUE(take(8_MiB).ok());

  EXPECT_EQ(arena_->stats().registered, 8_MiB);
}

TEST_F(ArenaGrowthTest, AfterTheSecondPieceTheNextIsBegunAndCounts) {
  ASSERT_TRUE(take(40_MiB).ok());
  ASSERT_TRUE(take(8_MiB).ok());

  EXPECT_EQ(arena_->stats().registered, 40_MiB + 8_MiB + 8_MiB);
}

TEST_F(ArenaGrowthTest, APieceMadeAheadIsUsedByTheNextSlotThatFitsNowhereElse) {
  for (const Bytes size : {40_MiB, 8_MiB, 8_MiB})
    ASSERT_TRUE(take(size).ok());

  EXPECT_EQ(arena_->stats().registrations, 3U);
}

TEST_F(ArenaGrowthTest, WhichPiecesThereAreDoesNotDependOnTheBackground) {
  const unsigned seed = std::random_device{}();
  std::mt19937_64 random(seed);
  HostArena alone(device_, Bytes{});
  std::vector<HostSlot> same;
  const auto follows = [](const std::vector<HostSlot>& slots) {
    const HostSlot& before = slots[slots.size() - 2];
    return slots.back().data() == before.data() + before.size().rounded_up(64_B).count();
  };
  for (int each = 0; each < 60; ++each) {
    const Bytes size{1 + random() % 4000000};
    ASSERT_TRUE(take(size).ok());
    same.push_back(alone.take(size).value());
    if (each > 0) {
      EXPECT_EQ(follows(out_), follows(same)) << "seed " << seed << ", slot " << each;
    }
  }
}

TEST_F(ArenaGrowthTest, TrimEndsWhatWasBegun) {
  ASSERT_TRUE(take(8_MiB).ok());
  ASSERT_TRUE(take(16_MiB).ok());

  EXPECT_TRUE(arena_->trim());

  EXPECT_EQ(arena_->stats().registered, 24_MiB);
}

TEST_F(ArenaGrowthTest, OnceTheNeedOfAStepIsKnownNothingIsBegun) {
  for (int step = 0; step < 3; ++step) {
    for (const Bytes size : {8_MiB, 16_MiB, 20_MiB})
      ASSERT_TRUE(take(size).ok());
    out_.clear();
    ASSERT_TRUE(arena_->trim());
    EXPECT_EQ(arena_->stats().registered, 44_MiB);
  }
  const std::uint64_t registrations = arena_->stats().registrations;

  for (const Bytes size : {8_MiB, 16_MiB, 20_MiB})
    ASSERT_TRUE(take(size).ok());

  EXPECT_EQ(arena_->stats().registrations, registrations);
}

TEST_F(ArenaGrowthTest, PinnedBytesAreThePeakForSizesJustOverAPowerOfTwo) {
  for (const Bytes size : {(1_MiB + 64_B), 4_MiB + 1_B, 16_MiB + 4_KiB, 33_MiB}) {
    make_arena();
    for (int each = 0; each < 7; ++each)
      ASSERT_TRUE(take(size).ok());
    out_.clear();

    ASSERT_TRUE(arena_->trim());

    const HostArenaStats stats = arena_->stats();
    EXPECT_LE(stats.registered.count() * 100, stats.in_slots_peak.count() * 103);
    EXPECT_LE(stats.in_slots_peak.count() * 100, size.count() * 7 * 101);
  }
}

TEST_F(ArenaGrowthTest, APieceMadeAheadDoesNotTakeTheBudgetOfALargeSlot) {
  options_.limit = 100_MiB;
  make_arena();
  ASSERT_TRUE(take(40_MiB).ok());
  ASSERT_TRUE(take(16_MiB).ok());
  ASSERT_GT(arena_->stats().registered, 56_MiB);  // the next has been begun

  EXPECT_TRUE(take(44_MiB).ok());
  EXPECT_EQ(arena_->stats().registered, 100_MiB);
}

TEST_F(ArenaGrowthTest, APieceMadeAheadThatFailsIsRemadeWhenItIsNeeded) {
  const Fault<&driver::Api::MemHostRegister> fault(table_, 3, CUDA_ERROR_INVALID_VALUE);

  for (const Bytes size : {40_MiB, 8_MiB, 8_MiB})
    ASSERT_TRUE(take(size).ok());

  EXPECT_EQ(refused(PinRefusal::kDriver), 1U);
  EXPECT_GE(arena_->stats().registered, 56_MiB);
}

TEST_F(ArenaGrowthTest, TheNodesLimitHoldsForTwoDevicesTogether) {
  options_.ahead = false;
  options_.node_limit = 20_MiB;
  make_arena();
  HostArena other(device_, options_);
  ASSERT_TRUE(take(12_MiB).ok());

  const auto refused_slot = other.take(12_MiB);

  EXPECT_EQ(refused_slot.status().code(), Code::kOutOfHostMemory);
  EXPECT_NE(refused_slot.status().detail().find("SPILLWAY_NODE_PINNED_LIMIT"), std::string::npos);
  EXPECT_EQ(other.stats().refused.at(static_cast<std::size_t>(PinRefusal::kNode)), 1U);
  EXPECT_EQ(other.stats().registered, 0_B);
}

TEST_F(ArenaGrowthTest, AnArenaThatEndsGivesItsShareOfTheNodeBack) {
  options_.node_limit = 20_MiB;
  make_arena();
  {
    HostArena other(device_, options_);
    EXPECT_TRUE(other.take(20_MiB).ok());
  }

  EXPECT_TRUE(take(20_MiB).ok());
}

TEST_F(ArenaGrowthTest, TheControlGroupsLimitIsKeptAndNothingChanges) {
  std::filesystem::create_directories(folder_ / "proc/self");
  std::filesystem::create_directories(folder_ / "sys/fs/cgroup");
  std::ofstream(folder_ / "proc/self/cgroup") << "0::/\n";
  std::ofstream(folder_ / "sys/fs/cgroup/memory.max") << (32U << 20U);
  std::ofstream(folder_ / "sys/fs/cgroup/memory.current") << (10U << 20U);
  options_.root = folder_;
  make_arena();

  EXPECT_EQ(take(21_MiB).code(), Code::kOutOfHostMemory);

  EXPECT_EQ(refused(PinRefusal::kMachine), 1U);
  EXPECT_EQ(arena_->stats().registered, 0_B);
  EXPECT_TRUE(take(20_MiB).ok());
}

TEST_F(ArenaGrowthTest, EveryRefusalHasAName) {
  EXPECT_EQ(pin_refusal_name(PinRefusal::kLimit), "limit");
  EXPECT_EQ(pin_refusal_name(PinRefusal::kDriver), "driver");
}

TEST_F(ArenaGrowthTest, ThreadsMayTakeAndGiveWhilePiecesAreMade) {
  std::vector<std::thread> threads;
  for (int each = 0; each < 4; ++each) {
    threads.emplace_back([this] {
      std::vector<HostSlot> slots;
      for (int round = 0; round < 30; ++round)
        slots.push_back(arena_->take(1_MiB).value());
      slots.clear();
    });
  }
  for (std::thread& thread : threads)
    thread.join();

  EXPECT_EQ(arena_->stats().in_slots, 0_B);
  EXPECT_EQ(arena_->stats().in_slots_peak.count() % (1U << 20U), 0U);
}

}  // namespace
}  // namespace spillway
