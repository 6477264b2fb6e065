// SPDX-License-Identifier: Apache-2.0
#include "emulator/emulator.h"
#include "tests/heap/replay_fixture.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <random>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

namespace spillway {
namespace {

/// How a step of eight requests differs from the replayed one at one of them.
enum class Difference : std::uint8_t { kNone, kOtherSize, kOneMore, kOneLess };

class ReplayMismatchTest : public ReplayTest,
                           public testing::WithParamInterface<std::tuple<Difference, std::size_t>> {
 protected:
  static constexpr std::size_t kRequests = 8;

  /// The addresses of the eight requests; null for one that is left out.
  Addresses step_but(Difference difference, std::size_t odd = kRequests) {
    std::map<driver::DevicePtr, char> allocated;
    const auto request = [&](Bytes size) {
      const auto at = allocate(size);
      const auto value = static_cast<char>(allocated.size());
      EXPECT_TRUE(allocated.emplace(at, value).second);
      *static_cast<char*>(at.raw()) = value;
      return at;
    };
    const auto release = [&](driver::DevicePtr at) {
      if (at == driver::DevicePtr{}) return;
      EXPECT_EQ(*static_cast<const char*>(at.raw()), allocated.at(at));
      allocated.erase(at);
      free(at);
    };
    Addresses all;
    for (std::size_t i = 0; i < kRequests; ++i) {
      if (i == odd && difference == Difference::kOneMore) release(request(512_B));
      const bool other = i == odd && difference == Difference::kOtherSize;
      const bool none = i == odd && difference == Difference::kOneLess;
      const Bytes size{(1 + i * 5 % 7) * 4096 + (other ? 512 : 0)};
      all.push_back(none ? driver::DevicePtr{} : request(size));
      if (i % 2 == 1) release(all[i - 1]);
    }
    for (std::size_t i = 1; i < kRequests; i += 2)
      release(all[i]);
    heap_->placement().end_step();
    return all;
  }
};

TEST_P(ReplayMismatchTest, TheHeapServesWhatDiffersAndThePlanTheRest) {
  const auto [difference, odd] = GetParam();
  step_but(Difference::kNone);
  step_but(Difference::kNone);
  const Addresses expected = step_but(Difference::kNone);

  const Addresses other = step_but(difference, odd);

  for (std::size_t i = 0; i < kRequests; ++i) {
    // Without one request, the one after it seems to differ.
    const bool here = i == odd && difference != Difference::kOneMore;
    const bool after = i == odd + 1 && difference == Difference::kOneLess;
    EXPECT_EQ(other[i] == expected[i], !here && !after) << i;
  }
  EXPECT_EQ(mismatches(), 1U);
  EXPECT_EQ(heap_->view().check(), "");
  EXPECT_EQ(step_but(Difference::kNone), expected);
  EXPECT_EQ(mismatches(), 1U);
}

INSTANTIATE_TEST_SUITE_P(AtEachRequest,
                         ReplayMismatchTest,
                         testing::Combine(testing::Values(Difference::kOtherSize,
                                                          Difference::kOneMore,
                                                          Difference::kOneLess),
                                          testing::Range(std::size_t{0}, std::size_t{8})));

TEST_F(ReplayTest, TheRestOfAStepWithManyOtherRequestsIsNotReplayed) {
  learn();
  step();
  const auto before = replayed();
  free(allocate(3_MiB));
  for (int i = 0; i < 1000; ++i)
    free(allocate(9_MiB));
  const auto b = allocate(64_KiB);
  const auto c = allocate(5_MiB);

  EXPECT_EQ(replayed(), before + 1);
  free(b);
  free(c);
  heap_->placement().end_step();
  EXPECT_EQ(mismatches(), 1U);
  step();
  EXPECT_EQ(replayed(), before + 4);
}

TEST_F(ReplayTest, SmallOtherStepsEndThePlan) {
  learn();
  step();
  for (int i = 0; i < 4; ++i) {
    free(allocate(1_KiB));
    heap_->placement().end_step();
  }

  EXPECT_EQ(heap_->stats().reserved, 2_MiB);
}

TEST_F(ReplayTest, RequestsOfHugeSizesFailInAReplayedStep) {
  learn();
  for (int i = 0; i < 3; ++i)
    EXPECT_FALSE(heap_->allocate(Bytes{~std::uint64_t{0} / 2}, main_, TagId::kUntagged).ok());

  EXPECT_EQ(mismatches(), 1U);
}

/// Random steps that are mostly the replayed one: what is allocated keeps its bytes, and no two
/// overlap.
TEST_F(ReplayTest, RandomDifferencesNeverReturnOneAddressTwice) {
  constexpr unsigned kSeed = 11;
  SCOPED_TRACE("seed " + std::to_string(kSeed));
  std::mt19937 random(kSeed);
  std::map<driver::DevicePtr, std::pair<Bytes, char>> allocated;
  const auto release = [&](driver::DevicePtr at) {
    const auto [size, byte] = allocated.at(at);
    const char* const bytes = static_cast<const char*>(at.raw());
    ASSERT_TRUE(std::all_of(bytes, bytes + size.count(), [b = byte](char c) { return c == b; }));
    allocated.erase(at);
    free(at);
  };
  for (int round = 0; round < 300; ++round) {
    const bool differs = round > 3 && random() % 4 == 0;
    std::vector<driver::DevicePtr> mine;
    for (std::uint64_t i = 0; i < 24; ++i) {
      const bool odd = differs && random() % 12 == 0;
      const Bytes size{512 * (1 + i * i % 37) + (odd ? 4096 : 0)};
      const auto at = allocate(size);
      const char byte = static_cast<char>(random());
      ASSERT_TRUE(allocated.emplace(at, std::pair{size, byte}).second);
      std::memset(at.raw(), byte, size.count());
      mine.push_back(at);
      const bool late = differs && random() % 6 == 0;
      if (i % 3 == 2 && !late) {
        release(mine[mine.size() - 2]);
        mine.erase(mine.end() - 2);
      }
    }
    for (const driver::DevicePtr at : mine) {
      if (!differs || random() % 8 != 0) release(at);
    }
    heap_->placement().end_step();
    ASSERT_EQ(heap_->view().check(), "");
    while (!allocated.empty() && random() % 8 != 0)
      release(allocated.begin()->first);
  }
  EXPECT_GT(replayed(), 500U);
  EXPECT_GT(mismatches(), 10U);
  while (!allocated.empty())
    release(allocated.begin()->first);
}

}  // namespace
}  // namespace spillway
