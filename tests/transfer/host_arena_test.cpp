// SPDX-License-Identifier: Apache-2.0
#include "allocator/transfer/host_arena.h"

#include "tests/heap/heap_fixture.h"

#include <sys/mman.h>
#include <sys/resource.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <random>
#include <thread>

namespace spillway {
namespace {

class HostArenaTest : public HeapTest {
 protected:
  HostSlot take(Bytes size) {
    Result<HostSlot> slot = arena_->take(size);
    EXPECT_TRUE(slot.ok()) << slot.status().message();
    return slot.ok() ? std::move(slot).value() : HostSlot{};
  }

  void make_arena(Bytes limit) { arena_ = std::make_unique<HostArena>(device_, limit); }

  void SetUp() override {
    HeapTest::SetUp();
    make_arena(Bytes{});
  }

  std::unique_ptr<HostArena> arena_;
};

TEST_F(HostArenaTest, SlotsDoNotOverlapAndBeginAtMultiplesOfSixtyFour) {
  std::vector<HostSlot> slots;
  for (const Bytes size : {1_B, 63_B, 64_B, 65_B, 1000_B})
    slots.push_back(take(size));

  int value = 0;
  for (const HostSlot& slot : slots)
    std::memset(slot.data(), ++value, slot.size().count());

  value = 0;
  for (const HostSlot& slot : slots) {
    ++value;
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(slot.data()) % 64, 0U);
    EXPECT_TRUE(std::all_of(slot.data(), slot.data() + slot.size().count(), [&](std::byte byte) {
      return byte == std::byte(value);
    }));
  }
}

TEST_F(HostArenaTest, MemoryThatIsNoLongerPinnedGoesBackToTheMachine) {
  HostSlot slot = take(1_MiB);
  std::byte* const place = slot.data();
  ASSERT_EQ(msync(place, 4096, MS_ASYNC), 0);
  slot = {};
  arena_->reset_peak();

  ASSERT_TRUE(arena_->trim());

  EXPECT_EQ(msync(place, 4096, MS_ASYNC), -1);
  EXPECT_EQ(errno, ENOMEM);
}

TEST_F(HostArenaTest, ASlotThatIsReleasedWithAFenceIsHandedOutWithIt) {
  const driver::Fence fence = stuck_fence();
  HostSlot first = take(1_KiB);
  std::byte* const place = first.data();
  first.fences.add(fence);
  first = {};

  HostSlot second = take(1_KiB);

  EXPECT_EQ(second.data(), place);
  EXPECT_EQ(second.fences, (driver::FenceSet{fence}));
}

TEST_F(HostArenaTest, FencesThatASlotStillHasAreKeptWithTheLastOne) {
  const driver::Fence old = stuck_fence();
  const driver::Fence last = stuck_fence();
  HostSlot slot = take(1_KiB);
  slot.fences.add(old);
  slot = {};
  slot = take(1_KiB);
  slot.fences.add(last);
  slot = {};

  slot = take(1_KiB);

  EXPECT_EQ(slot.fences, (driver::FenceSet{old, last}));
}

TEST_F(HostArenaTest, WhichSlotIsHandedOutDoesNotDependOnFences) {
  std::mt19937_64 random(5);
  HostArena fenced(device_, Bytes{});
  std::vector<std::pair<HostSlot, HostSlot>> out;
  std::byte* base = nullptr;
  std::byte* fenced_base = nullptr;
  for (int round = 0; round < 400; ++round) {
    const Bytes size{1 + random() % 20000};
    if (random() % 3 != 0 || out.empty()) {
      out.emplace_back(take(size), fenced.take(size).value());
      if (base == nullptr) {
        base = out.back().first.data();
        fenced_base = out.back().second.data();
      }
      ASSERT_EQ(out.back().first.data() - base, out.back().second.data() - fenced_base);
      out.back().second.fences.clear();
    } else {
      std::swap(out.at(random() % out.size()), out.back());
      out.back().second.fences.add(stuck_fence());
      out.pop_back();
    }
    ASSERT_EQ(arena_->stats().registered, 8_MiB) << "one piece, so that offsets can be compared";
  }
}

TEST_F(HostArenaTest, AFencedSlotCountsAsInUseUntilItsFenceHasPassed) {
  HostSlot slot = take(1_KiB);
  slot.fences.add(stuck_fence());
  slot = {};
  EXPECT_EQ(arena_->stats().in_slots, 1_KiB);

  slot = take(1_KiB);
  slot.fences.add(passed_fence());
  slot = {};

  EXPECT_EQ(arena_->stats().in_slots_peak, 1_KiB) << "counted once, not for its fence and its slot";
}

TEST_F(HostArenaTest, AFenceThatHasPassedNoLongerCounts) {
  take(1_KiB).fences.add(passed_fence());

  EXPECT_EQ(arena_->stats().in_slots, 0_B);
}

TEST_F(HostArenaTest, ThePeakIsTheLargestSinceItWasReset) {
  HostSlot one = take(4_KiB);
  take(4_KiB);
  EXPECT_EQ(arena_->stats().in_slots_peak, 8_KiB);

  arena_->reset_peak();

  EXPECT_EQ(arena_->stats().in_slots_peak, 4_KiB);
}

TEST_F(HostArenaTest, ManySmallSlotsShareOneRegistration) {
  std::vector<HostSlot> slots;
  for (int each = 0; each < 100; ++each)
    slots.push_back(take(64_KiB));

  EXPECT_EQ(arena_->stats().registrations, 1U);
}

TEST_F(HostArenaTest, TheLimitIsATypedErrorThatNamesItAndNothingChanges) {
  make_arena(1_MiB);
  HostSlot slot = take(768_KiB);
  const Bytes before = arena_->stats().registered;

  const auto refused = arena_->take(512_KiB);

  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.status().code(), Code::kOutOfHostMemory);
  EXPECT_NE(refused.status().detail().find("SPILLWAY_PINNED_LIMIT is " + readable(1_MiB)),
            std::string::npos);
  EXPECT_EQ(arena_->stats().registered, before);
}

TEST_F(HostArenaTest, WhereALargePieceExceedsTheLimitExactlyTheRequestIsPinned) {
  make_arena(1_MiB);
  HostSlot first = take(960_KiB);

  take(64_KiB);

  EXPECT_EQ(arena_->stats().registered, 1_MiB);
}

TEST_F(HostArenaTest, NoPieceTakesMoreThanAnEighthOfALimitBeyondWhatItIsFor) {
  make_arena(16_MiB);

  take(100_KiB);

  EXPECT_LE(arena_->stats().registered, 100_KiB + 2_MiB);
}

TEST_F(HostArenaTest, SizesThatNoMachineHasAreATypedError) {
  for (const std::uint64_t size : {~0ULL, ~0ULL - 63, 1ULL << 63U, (1ULL << 50U) + 1}) {
    EXPECT_EQ(arena_->take(Bytes{size}).status().code(), Code::kOutOfHostMemory);
  }
}

TEST_F(HostArenaTest, AFailedRegistrationNamesTheProcesssLimitOfLockedMemory) {
  const Fault<&driver::Api::MemHostRegister> fault(table_, 1, CUDA_ERROR_OPERATING_SYSTEM);
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_MEMLOCK, &before), 0);
  const rlimit less{65536, before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_MEMLOCK, &less), 0);

  const Status status = arena_->take(8_MiB).status();

  ASSERT_EQ(setrlimit(RLIMIT_MEMLOCK, &before), 0);
  EXPECT_EQ(status.code(), Code::kOutOfHostMemory);
  EXPECT_NE(
      status.detail().find("RLIMIT_MEMLOCK (ulimit -l) lets this process lock " + readable(64_KiB)),
      std::string::npos)
      << status.detail();
}

TEST_F(HostArenaTest, AFailedRegistrationIsATypedErrorAndTheNextOneWorks) {
  const Fault<&driver::Api::MemHostRegister> fault(table_, 2, CUDA_ERROR_INVALID_VALUE);
  HostSlot first = take(8_MiB);

  const auto second = arena_->take(16_MiB);

  EXPECT_EQ(second.status().code(), Code::kOutOfHostMemory);
  EXPECT_EQ(arena_->stats().registered, 8_MiB);
  EXPECT_EQ(arena_->stats().refused, (PinnedPieces::Refusals{0, 0, 0, 1}));
  HostSlot third = take(16_MiB);
  first = {};
}

TEST_F(HostArenaTest, PagesThatTheDriverDoesNotUnregisterStayMapped) {
  const Fault<&driver::Api::MemHostUnregister> fault(table_, 1, CUDA_ERROR_INVALID_VALUE);
  HostSlot slot = take(8_MiB);
  std::byte* const at = slot.data();
  slot = {};

  arena_.reset();

  EXPECT_EQ(msync(at, 4096, MS_ASYNC), 0) << std::strerror(errno);
  ASSERT_EQ(driver::api().value()->MemHostUnregister(at), CUDA_SUCCESS);
  munmap(at, (8_MiB).count());
}

TEST_F(HostArenaTest, RegistrationsAreCountedForTheProcess) {
  const std::uint64_t before = driver::counters().registrations;

  take(1_KiB);

  EXPECT_EQ(driver::counters().registrations, before + 1);
}

TEST_F(HostArenaTest, ThreadsMayTakeAndGiveAtTheSameTime) {
  std::vector<std::thread> threads;
  for (unsigned seed = 0; seed < 4; ++seed) {
    threads.emplace_back([this, seed] {
      std::mt19937_64 random(seed);
      for (int round = 0; round < 500; ++round) {
        HostSlot slot = take(Bytes{1 + random() % 4096});
        std::memset(slot.data(), static_cast<int>(seed), slot.size().count());
        slot = {};
        if (round % 50 == 0) arena_->trim();
      }
    });
  }
  for (std::thread& thread : threads)
    thread.join();

  EXPECT_EQ(arena_->stats().in_slots, 0_B);
}

}  // namespace
}  // namespace spillway
