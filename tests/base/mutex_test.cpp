// SPDX-License-Identifier: Apache-2.0
#include "allocator/base/mutex.h"

#include <gtest/gtest.h>

#include <array>
#include <thread>

namespace spillway {
namespace {

/// Three threads add `times` each, in two steps with `between` between them.
template <typename Between>
int added(int times, Between between) {
  LightMutex mutex;
  int sum = 0;
  std::array<std::thread, 3> threads;
  for (std::thread& each : threads) {
    each = std::thread([&] {
      for (int time = 0; time < times; ++time) {
        const LightLock lock(mutex);
        const int before = sum;
        between();
        sum = before + 1;
      }
    });
  }
  for (std::thread& each : threads)
    each.join();
  return sum;
}

TEST(LightMutexTest, OneThreadIsInsideAtATime) {
  EXPECT_EQ(added(10000, [] {}), 30000);
}

TEST(LightMutexTest, TheOneThatWaitsForALongSectionGetsInWhenItIsOver) {
  const auto long_enough_to_sleep = [] {
    for (int yields = 0; yields < 2500; ++yields)
      std::this_thread::yield();
  };

  EXPECT_EQ(added(1, long_enough_to_sleep), 3);
}

}  // namespace
}  // namespace spillway
