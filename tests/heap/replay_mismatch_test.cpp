// SPDX-License-Identifier: Apache-2.0
#include "emulator/emulator.h"
#include "tests/heap/replay_fixture.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <random>
#include <thread>
#include <utility>
#include <vector>

namespace spillway {
namespace {

/// A step of eight requests, of which one is of another size: what comes before it is replayed.
class ReplayMismatchTest : public ReplayTest, public testing::WithParamInterface<std::size_t> {
 protected:
  static constexpr std::size_t kRequests = 8;
  static constexpr std::size_t kNone = kRequests;

  Addresses step_but(std::size_t odd) {
    std::vector<std::pair<driver::DevicePtr, std::size_t>> allocated;
    Addresses all;
    const auto release = [&](std::size_t index) {
      const auto [at, value] = allocated[index];
      EXPECT_EQ(*static_cast<const char*>(at.raw()), static_cast<char>(value));
      free(at);
      allocated.erase(allocated.begin() + static_cast<std::ptrdiff_t>(index));
    };
    for (std::size_t i = 0; i < kRequests; ++i) {
      const auto at = allocate(Bytes{(1 + i * 5 % 7) * 4096 + (i == odd ? 512 : 0)});
      *static_cast<char*>(at.raw()) = static_cast<char>(i);
      allocated.emplace_back(at, i);
      all.push_back(at);
      if (i % 2 == 1) release(i % 3 % allocated.size());
    }
    while (!allocated.empty())
      release(allocated.size() - 1);
    heap_->placement().end_step();
    return all;
  }
};

TEST_P(ReplayMismatchTest, TheHeapServesTheRestOfTheStepAndThePlanTheNext) {
  step_but(kNone);
  step_but(kNone);
  const Addresses expected = step_but(kNone);
  const auto before = replayed();

  const Addresses other = step_but(GetParam());

  for (std::size_t i = 0; i < kRequests; ++i)
    EXPECT_EQ(other[i] == expected[i], i < GetParam()) << i;
  EXPECT_EQ(replayed(), before + GetParam());
  EXPECT_EQ(mismatches(), 1U);
  EXPECT_EQ(heap_->view().check(), "");
  EXPECT_EQ(step_but(kNone), expected);
}

INSTANTIATE_TEST_SUITE_P(AtEachRequest,
                         ReplayMismatchTest,
                         testing::Range(std::size_t{0}, std::size_t{8}));

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
