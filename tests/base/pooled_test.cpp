// SPDX-License-Identifier: Apache-2.0
#include "allocator/base/pooled.h"

#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <memory>
#include <set>
#include <thread>
#include <unordered_map>
#include <vector>

namespace spillway {
namespace {

struct alignas(64) Large {
  std::array<std::uint64_t, 9> words{};
};

TEST(ObjectPoolTest, LiveObjectsShareNoMemory) {
  auto& pool = ObjectPool<sizeof(Large), alignof(Large)>::instance();
  std::set<std::uintptr_t> taken;
  for (int each = 0; each < 200; ++each)
    taken.insert(reinterpret_cast<std::uintptr_t>(pool.take()));

  std::uintptr_t end = 0;
  for (const std::uintptr_t at : taken) {
    EXPECT_GE(at, end);
    EXPECT_EQ(at % alignof(Large), 0U);
    end = at + sizeof(Large);
  }
  EXPECT_EQ(taken.size(), 200U);
  for (const std::uintptr_t at : taken)
    pool.give(reinterpret_cast<void*>(at));  // NOLINT(performance-no-int-to-ptr)
}

TEST(ObjectPoolTest, WhatIsFreedLastIsHandedOutFirst) {
  auto& pool = ObjectPool<24, 8>::instance();
  void* const first = pool.take();
  void* const second = pool.take();
  pool.give(first);
  pool.give(second);

  EXPECT_EQ(pool.take(), second);
  EXPECT_EQ(pool.take(), first);
  pool.give(first);
  pool.give(second);
}

TEST(PoolAllocatorTest, ThreadsMakeAndEndEachOthersObjects) {
  std::vector<std::shared_ptr<Large>> made;
  for (int each = 0; each < 1000; ++each) {
    made.push_back(std::allocate_shared<Large>(PoolAllocator<Large>()));
    made.back()->words.fill(static_cast<std::uint64_t>(each));
  }
  std::thread other([&] {
    for (std::size_t each = 0; each < made.size(); each += 2)
      made[each].reset();
  });
  std::vector<std::shared_ptr<Large>> more;
  for (std::uint64_t each = 0; each < 1000; ++each) {
    more.push_back(std::allocate_shared<Large>(PoolAllocator<Large>()));
    more.back()->words.fill(5000 + each);
  }
  other.join();

  for (std::size_t each = 1; each < made.size(); each += 2)
    EXPECT_EQ(made[each]->words.back(), each);
  for (std::size_t each = 0; each < more.size(); ++each)
    EXPECT_EQ(more[each]->words.front(), 5000 + each);
}

TEST(PoolAllocatorTest, ContainersTakeTheirArraysElsewhere) {
  std::unordered_map<int,
                     int,
                     std::hash<int>,
                     std::equal_to<>,
                     PoolAllocator<std::pair<const int, int>>>
      squares;
  for (int each = 0; each < 1000; ++each)
    squares[each] = each * each;
  for (int each = 0; each < 1000; each += 2)
    squares.erase(each);

  EXPECT_EQ(squares.size(), 500U);
  EXPECT_EQ(squares.at(31), 961);
}

}  // namespace
}  // namespace spillway
