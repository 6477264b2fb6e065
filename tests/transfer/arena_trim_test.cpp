// SPDX-License-Identifier: Apache-2.0
#include "allocator/transfer/host_arena.h"
#include "tests/heap/heap_fixture.h"

#include <random>

namespace spillway {
namespace {

class ArenaTrimTest : public HeapTest {
 protected:
  void SetUp() override {
    HeapTest::SetUp();
    arena_ = std::make_unique<HostArena>(device_, Bytes{});
  }

  HostSlot take(Bytes size) {
    Result<HostSlot> slot = arena_->take(size);
    EXPECT_TRUE(slot.ok()) << slot.status().message();
    return slot.ok() ? std::move(slot).value() : HostSlot{};
  }

  /// One training step: slots in the order of the forward pass, released in the order of the
  /// backward pass.
  void step(const std::vector<Bytes>& sizes) {
    std::vector<HostSlot> slots;
    for (const Bytes size : sizes)
      slots.push_back(take(size));
    while (!slots.empty()) {
      slots.back().fences = {passed_fence()};
      slots.pop_back();
    }
  }

  static std::vector<Bytes> random_sizes(std::mt19937_64& random) {
    std::vector<Bytes> sizes(1 + random() % 40);
    for (Bytes& size : sizes)
      size = Bytes{1 + random() % (random() % 8 == 0 ? 3000000 : 40000)};
    return sizes;
  }

  std::unique_ptr<HostArena> arena_;
};

TEST_F(ArenaTrimTest, AnArenaThatWasNotUsedIsEmptied) {
  take(1_KiB);
  arena_->reset_peak();

  EXPECT_TRUE(arena_->trim());

  EXPECT_EQ(arena_->stats().registered, 0_B);
}

TEST_F(ArenaTrimTest, OnePieceOfThePeakReplacesAll) {
  step({5_MiB, 5_MiB, 5_MiB, 100_KiB});

  EXPECT_TRUE(arena_->trim());

  EXPECT_EQ(arena_->stats().registered, 15_MiB + 100_KiB);
}

TEST_F(ArenaTrimTest, APieceThatIsLittleTooLargeStays) {
  step({8_MiB - 128_KiB});

  EXPECT_TRUE(arena_->trim());

  EXPECT_EQ(arena_->stats().registrations, 1U);
}

TEST_F(ArenaTrimTest, SeveralPiecesOfTheRightSizeBecomeOne) {
  step({8_MiB, 8_MiB});

  EXPECT_TRUE(arena_->trim());

  EXPECT_EQ(arena_->stats().registrations, 3U);
  EXPECT_EQ(arena_->stats().registered, 16_MiB);
}

TEST_F(ArenaTrimTest, AStepThatRepeatsNeedsNoRegistrationAndNoSpareMemory) {
  std::mt19937_64 random(23);
  for (int trial = 0; trial < 60; ++trial) {
    const std::vector<Bytes> sizes = random_sizes(random);
    arena_->reset_peak();
    step(sizes);
    ASSERT_TRUE(arena_->trim());
    const HostArenaStats trimmed = arena_->stats();
    const Bytes page = 4_KiB;
    ASSERT_LE(trimmed.registered.count() * 100, (trimmed.in_slots_peak + page).count() * 103);

    step(sizes);
    step(sizes);

    ASSERT_EQ(arena_->stats().registrations, trimmed.registrations) << "trial " << trial;
  }
}

TEST_F(ArenaTrimTest, APendingFenceBlocksTheTrim) {
  take(1_KiB).fences.add(stuck_fence());

  EXPECT_FALSE(arena_->trim());

  EXPECT_EQ(arena_->stats().registered, 8_MiB);
}

/// A table whose events pass only for a host that waits for them.
class SlowEvents {
 public:
  explicit SlowEvents(driver::Api& table) {
    synchronize_ = table.EventSynchronize;
    query_ = table.EventQuery;
    waited_ = false;
    table.EventSynchronize = [](CUevent event) {
      waited_ = true;
      return synchronize_(event);
    };
    table.EventQuery = [](CUevent event) {
      return waited_ ? query_(event) : CUDA_ERROR_NOT_READY;
    };
  }

 private:
  inline static PFN_cuEventSynchronize_v2000 synchronize_ = nullptr;
  inline static PFN_cuEventQuery_v2000 query_ = nullptr;
  inline static bool waited_ = false;
};

TEST_F(ArenaTrimTest, TheBlockingTrimWaitsForFencesAndCountsIt) {
  const SlowEvents slow(table_);
  take(1_KiB).fences.add(passed_fence());
  ASSERT_FALSE(arena_->trim());
  const std::uint64_t syncs = driver::counters().host_syncs;

  EXPECT_TRUE(arena_->trim_sync());

  EXPECT_EQ(driver::counters().host_syncs, syncs + 1);
  EXPECT_EQ(arena_->stats().registered, 4_KiB);
}

TEST_F(ArenaTrimTest, AWaitThatFailsLeavesThePiecesAndTheNextOneWorks) {
  table_.EventQuery = stuck_table_.EventQuery;
  take(1_KiB).fences.add(passed_fence());
  const Fault<&driver::Api::EventSynchronize> fault(table_, 1, CUDA_ERROR_INVALID_VALUE);

  EXPECT_FALSE(arena_->trim_sync());
  EXPECT_EQ(arena_->stats().registered, 8_MiB);

  EXPECT_TRUE(arena_->trim_sync());
  EXPECT_EQ(arena_->stats().registered, 4_KiB);
}

TEST_F(ArenaTrimTest, TheBlockingTrimDoesNotWaitWhereASlotIsOut) {
  HostSlot out = take(1_KiB);
  take(1_KiB).fences.add(stuck_fence());
  const std::uint64_t syncs = driver::counters().host_syncs;

  EXPECT_FALSE(arena_->trim_sync());

  EXPECT_EQ(driver::counters().host_syncs, syncs);
}

TEST_F(ArenaTrimTest, ASlotThatIsOutKeepsItsPlaceWhileFreePiecesGo) {
  HostSlot out = take(8_MiB);
  take(16_MiB);
  arena_->reset_peak();

  EXPECT_TRUE(arena_->trim());

  EXPECT_EQ(arena_->stats().registered, 8_MiB);
  out.data()[out.size().count() - 1] = std::byte{1};
}

TEST_F(ArenaTrimTest, PiecesThatThePeakNeedsStayWhileASlotIsOut) {
  HostSlot out = take(8_MiB);
  take(16_MiB);
  arena_->reset_peak();
  take(12_MiB);

  EXPECT_FALSE(arena_->trim());

  EXPECT_EQ(arena_->stats().registered, 24_MiB);
}

TEST_F(ArenaTrimTest, AfterwardsTheArenaGrowsByLittleMoreThanTheRequest) {
  step({6_MiB});
  ASSERT_TRUE(arena_->trim());
  HostSlot all = take(6_MiB);

  HostSlot more = take(200_KiB);

  EXPECT_EQ(arena_->stats().registered, 6_MiB + 200_KiB);
  all = {};
}

TEST_F(ArenaTrimTest, WhereTheMachineRefusesTheNewPieceTheArenaStillServes) {
  step({1_MiB});
  const Fault<&driver::Api::MemHostRegister> fault(table_, 1, CUDA_ERROR_INVALID_VALUE);

  arena_->trim();

  step({1_MiB});
  EXPECT_EQ(arena_->stats().in_slots, 0_B);
}

}  // namespace
}  // namespace spillway
