// SPDX-License-Identifier: Apache-2.0
#include "allocator/transfer/host_arena.h"
#include "allocator/transfer/recent_peaks.h"
#include "tests/heap/heap_fixture.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <numeric>
#include <random>
#include <vector>

namespace spillway {
namespace {

unsigned seed() {
  const char* const given = std::getenv("TEST_SEED");
  return given != nullptr ? static_cast<unsigned>(std::strtoul(given, nullptr, 10))
                          : std::random_device{}();
}

/// Steps whose slots are those of a fixed model, scaled by a length.
class ArenaWorkloadTest : public HeapTest {
 protected:
  static constexpr Bytes kPiece = 8_MiB;

  void SetUp() override {
    HeapTest::SetUp();
    for (Bytes& size : model_)
      size = Bytes{64 * (16 + random_() % 40000)};
    make_arena(Bytes{});
  }

  void TearDown() override {
    arena_.reset();
    HeapTest::TearDown();
  }

  void make_arena(Bytes limit) {
    PinnedOptions options;
    options.limit = limit;
    options.ahead = true;
    make_arena(options);
  }

  void make_arena(const PinnedOptions& options) {
    arena_ = std::make_unique<HostArena>(device_, options);
  }

  /// Per mille of the longest.
  std::vector<std::uint64_t> lengths(std::size_t count) {
    std::vector<std::uint64_t> all(count);
    for (std::uint64_t& length : all)
      length = 250 + random_() % 751;
    return all;
  }

  [[nodiscard]] std::vector<Bytes> slots_of(std::uint64_t length) const {
    std::vector<Bytes> sizes;
    for (const Bytes size : model_)
      sizes.push_back(Bytes{size.count() * length / 1000}.rounded_up(64_B));
    return sizes;
  }

  [[nodiscard]] Bytes peak_of(std::uint64_t length) const {
    Bytes sum;
    for (const Bytes size : slots_of(length))
      sum += size;
    return sum;
  }

  /// Slots in the order of a forward pass, returned in that of its backward pass. What was refused
  /// is left out.
  void step(std::uint64_t length) {
    std::vector<HostSlot> slots;
    for (const Bytes size : slots_of(length)) {
      Result<HostSlot> slot = arena_->take(size);
      if (slot.ok()) slots.push_back(std::move(slot).value());
    }
    while (!slots.empty()) {
      slots.back().fences = {passed_fence()};
      slots.pop_back();
    }
    arena_->end_step(length);
  }

  [[nodiscard]] std::uint64_t refusals() const {
    const auto refused = arena_->stats().refused;
    return std::accumulate(refused.begin(), refused.end(), std::uint64_t{0});
  }

  const unsigned seed_ = seed();
  std::mt19937_64 random_{seed_};
  std::vector<Bytes> model_ = std::vector<Bytes>(30);
  std::unique_ptr<HostArena> arena_;
};

/// How many lengths there are.
class EveryCount : public ArenaWorkloadTest, public testing::WithParamInterface<std::size_t> {};

TEST_P(EveryCount, PinnedMemoryIsAtMostATenthOverThePeak) {
  const std::vector<std::uint64_t> all = lengths(GetParam());
  Bytes peak;
  for (int each = 0; each < 600; ++each) {
    const std::uint64_t length = all[random_() % all.size()];
    peak = std::max(peak, peak_of(length));

    step(length);

    ASSERT_LE(arena_->stats().registered.count() * 10, (peak + 4_KiB).count() * 11)
        << "seed " << seed_ << ", step " << each;
  }
  EXPECT_LE(arena_->stats().registered_peak.count() * 10, (peak + kPiece).count() * 12);
}

TEST_P(EveryCount, NothingIsRegisteredUnlessThePeakGrows) {
  const std::vector<std::uint64_t> all = lengths(GetParam());
  std::uint64_t longest = 0;
  for (int each = 0; each < 600; ++each) {
    const std::uint64_t length = all[random_() % all.size()];
    const std::uint64_t before = arena_->stats().registrations;

    step(length);

    if (length <= longest) {
      ASSERT_EQ(arena_->stats().registrations, before) << "seed " << seed_ << ", step " << each;
    }
    longest = std::max(longest, length);
  }
}

TEST_P(EveryCount, ALimitOfAFifthOverTheNeedRefusesNothing) {
  const std::vector<std::uint64_t> all = lengths(GetParam());
  const Bytes need = peak_of(*std::max_element(all.begin(), all.end()));
  make_arena(Bytes{need.count() * 12 / 10});
  for (int each = 0; each < 300; ++each)
    step(all[random_() % all.size()]);

  EXPECT_EQ(refusals(), 0U) << "seed " << seed_;
}

TEST_P(EveryCount, ALimitBelowTheNeedIsUsedWhollyAndRegistersNothingMoreOnceItIsReached) {
  const std::vector<std::uint64_t> all = lengths(GetParam());
  const Bytes limit{peak_of(*std::max_element(all.begin(), all.end())).count() * 6 / 10};
  make_arena(limit);
  for (const std::uint64_t length : all)
    step(length);
  const HostArenaStats before = arena_->stats();

  for (int each = 0; each < 300; ++each)
    step(all[random_() % all.size()]);

  EXPECT_EQ(arena_->stats().registrations, before.registrations) << "seed " << seed_;
  EXPECT_LE(arena_->stats().registered, limit);
  EXPECT_GT(arena_->stats().registered + 4_KiB, limit);
}

TEST_P(EveryCount, ShorterLengthsReleaseMemoryOnceTheLongerAreNoLongerRecent) {
  for (const std::uint64_t length : lengths(GetParam()))
    step(length);
  const std::vector<std::uint64_t> all = lengths(GetParam());

  for (std::size_t each = 0; each < 2 * RecentPeaks::kSteps; ++each)
    step(all[random_() % all.size()] / 4);

  EXPECT_LE(arena_->stats().registered.count() * 10, peak_of(250).count() * 11) << "seed " << seed_;
}

INSTANTIATE_TEST_SUITE_P(Counts, EveryCount, testing::Values(1, 2, 14, 30, 56, 300));

TEST_F(ArenaWorkloadTest, LengthsThatGrowSlowlyRegisterSeldom) {
  int resized = 0;
  for (std::uint64_t length = 250; length <= 1000; length += 3) {
    const std::uint64_t before = arena_->stats().registrations;

    step(length);

    resized += arena_->stats().registrations != before ? 1 : 0;
    ASSERT_LE(arena_->stats().registered.count() * 10, (peak_of(length) + 4_KiB).count() * 11);
  }
  // A sixteenth each time: ln(4) / ln(17 / 16).
  EXPECT_LE(resized, 25);
}

TEST_F(ArenaWorkloadTest, ARepeatedLengthAfterManyEndsAtExactlyItsPeak) {
  for (const std::uint64_t length : lengths(30))
    step(length);

  for (std::size_t each = 0; each <= RecentPeaks::kSteps; ++each)
    step(600);

  EXPECT_LE(arena_->stats().registered.count() * 100, (peak_of(600) + 4_KiB).count() * 103);
}

TEST_F(ArenaWorkloadTest, AMachineThatRefusesOneLargePieceIsNotAskedInEveryStep) {
  const auto folder =
      std::filesystem::path(testing::TempDir()) / ("workload." + std::to_string(getpid()));
  std::filesystem::create_directories(folder / "proc/self");
  std::filesystem::create_directories(folder / "sys/fs/cgroup");
  std::ofstream(folder / "proc/self/cgroup") << "0::/\n";
  // As much as one step has: a piece of half of it at a time.
  std::ofstream(folder / "sys/fs/cgroup/memory.max") << peak_of(1000).count();
  std::ofstream(folder / "sys/fs/cgroup/memory.current") << peak_of(500).count();
  PinnedOptions options;
  options.root = folder;
  make_arena(options);
  for (int each = 0; each < 3; ++each)
    step(1000);
  const std::uint64_t before = arena_->stats().registrations;

  for (std::size_t each = 0; each < RecentPeaks::kSteps / 2; ++each)
    step(1000);

  EXPECT_EQ(arena_->stats().registrations, before);
  std::filesystem::remove_all(folder);
}

TEST_F(ArenaWorkloadTest, SlotsThatStayOutDoNotMakeEveryStepRegister) {
  HostSlot kept = arena_->take(kPiece).value();
  const std::vector<std::uint64_t> all = lengths(30);
  for (const std::uint64_t length : all)
    step(length);
  const std::uint64_t before = arena_->stats().registrations;

  constexpr std::uint64_t kSteps = 100;
  for (std::uint64_t each = 0; each < kSteps; ++each)
    step(all[random_() % all.size()]);

  // Another order of lengths splits the pieces differently around the kept slot, so that a step may
  // need one more.
  EXPECT_LE(arena_->stats().registrations - before, kSteps / 20) << "seed " << seed_;
}

TEST_F(ArenaWorkloadTest, StepsOfAFewPagesAndSeveralShapesRegisterNothing) {
  const std::vector<std::uint64_t> lengths{500, 1000, 1000, 500};
  for (std::uint64_t pages = 1; pages <= 20; ++pages) {
    make_arena(Bytes{});
    model_ = {Bytes{pages * static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE))}};
    for (const std::uint64_t length : lengths)
      step(length);
    const std::uint64_t registrations = arena_->stats().registrations;

    for (const std::uint64_t length : lengths)
      step(length);

    EXPECT_EQ(arena_->stats().registrations, registrations) << pages << " pages";
  }
}

/// A slot that stays out over all steps, taken before the first one, in it, or behind it.
class ASlotStaysOut : public ArenaWorkloadTest, public testing::WithParamInterface<int> {};

TEST_P(ASlotStaysOut, StepsThatRepeatRegisterNothing) {
  for (const std::uint64_t length : {20ULL, 1000ULL}) {
    make_arena(Bytes{});
    std::vector<HostSlot> stay;
    std::uint64_t registrations = 0;
    for (int each = 0; each < 12; ++each) {
      if (each == GetParam()) stay.push_back(arena_->take(100'000_B).value());
      if (each == 8) registrations = arena_->stats().registrations;
      step(length);
    }

    EXPECT_EQ(arena_->stats().registrations, registrations) << "length " << length;
    for (HostSlot& slot : stay)
      slot.fences.add(passed_fence());
  }
}

INSTANTIATE_TEST_SUITE_P(, ASlotStaysOut, testing::Values(0, 1, 5));

}  // namespace
}  // namespace spillway
