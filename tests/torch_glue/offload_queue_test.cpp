// SPDX-License-Identifier: Apache-2.0
#include "torch_glue/model_state/offload_queue.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <set>
#include <vector>

namespace spillway {
namespace {

using Id = AccessOrder::Id;

/// Uses from place `from` of `step`, which follows itself, to the next one of `id`.
std::uint64_t searched(const std::vector<Id>& step, std::size_t from, Id id) {
  for (std::size_t uses = 0; uses < step.size(); ++uses)
    if (step[(from + uses) % step.size()] == id) return uses;
  return AccessOrder::kUnknown;
}

/// A step without the same use twice in a row, and its first one last.
std::vector<Id> random_step(std::mt19937& dice, std::size_t uses, Id ids) {
  std::vector<Id> step;
  while (step.size() < uses) {
    const Id id = 1 + dice() % ids;
    if (step.empty() || (step.back() != id && (step.size() + 1 < uses || step.front() != id)))
      step.push_back(id);
  }
  return step;
}

TEST(AccessOrderTest, DistancesAreThoseOfTheRecordedStep) {
  for (unsigned seed = 0; seed < 50; ++seed) {
    std::mt19937 dice(seed);
    const Id ids = 2 + dice() % 20;
    const auto step = random_step(dice, 3 + dice() % 60, ids);
    AccessOrder order;
    for (const Id id : step)
      order.use(id);
    EXPECT_EQ(order.distance(step[0]), 0U);  // nothing is recorded yet
    order.end_step();
    for (int round = 0; round < 2; ++round) {
      for (std::size_t place = 0; place < step.size(); ++place) {
        for (Id id = 1; id <= ids + 1; ++id)
          ASSERT_EQ(order.distance(id), searched(step, place, id)) << seed << ' ' << place;
        order.use(step[place]);
      }
      if (round == 1) order.end_step();
    }
  }
}

TEST(AccessOrderTest, AStepIsFollowedAcrossSkippedAndRepeatedUses) {
  for (unsigned seed = 0; seed < 50; ++seed) {
    std::mt19937 dice(seed);
    std::vector<Id> step(40);  // each once, so that there is one place to follow it to
    for (std::size_t i = 0; i < step.size(); ++i)
      step[i] = i + 1;
    std::shuffle(step.begin(), step.end(), dice);
    AccessOrder order;
    for (const Id id : step)
      order.use(id);
    order.end_step();
    for (std::size_t place = 0; place < step.size(); ++place) {
      if (dice() % 4 == 0) continue;
      order.use(step[place]);
      if (dice() % 4 == 0) order.use(step[place]);
      if (dice() % 4 == 0) order.use(1000);  // not in the recorded step
      for (const Id id : step)
        ASSERT_EQ(order.distance(id), searched(step, place + 1, id));
    }
  }
}

TEST(AccessOrderTest, TwoUsesInARowAreTwo) {
  AccessOrder order;  // the output layer ends the forward pass and begins the backward pass
  for (const Id id : {1U, 2U, 2U, 1U})
    order.use(id);
  order.end_step();
  order.use(1);
  order.use(2);
  EXPECT_EQ(order.distance(2), 0U);
  EXPECT_EQ(order.distance(1), 1U);
  order.use(2);
  EXPECT_GT(order.distance(2), order.distance(1));
}

TEST(AccessOrderTest, AUseMoreInARowDoesNotLoseThePlace) {
  AccessOrder order;
  for (Id id = 0; id < 200; ++id)
    order.use(id % 20);
  order.end_step();
  for (Id id = 0; id < 10; ++id)
    order.use(id);
  order.use(9);
  EXPECT_EQ(order.place(), 10U);
}

TEST(AccessOrderTest, AStepWithoutUsesKeepsTheRecordedOne) {
  AccessOrder order;
  order.end_step();
  EXPECT_FALSE(order.known());
  order.use(1);
  order.use(2);
  order.end_step();
  order.end_step();
  EXPECT_EQ(order.distance(2), 1U);
}

TEST(AccessOrderTest, TheNextUseIsConstantUntilAUseOrAChange) {
  for (unsigned seed = 0; seed < 50; ++seed) {
    std::mt19937 dice(seed);
    constexpr Id kIds = 12;
    AccessOrder order;
    std::map<Id, std::uint64_t> known;
    std::vector<Id> changed;
    for (int step = 0; step < 6; ++step) {
      for (const Id id : random_step(dice, 40, kIds)) {
        order.use(id);
        known.erase(id);
        if (!order.take_changed(changed)) known.clear();
        for (const Id each : changed)
          known.erase(each);
        for (Id each = 1; each <= kIds; ++each) {
          const auto entry = known.try_emplace(each, order.next_use(each)).first;
          ASSERT_EQ(entry->second, order.next_use(each)) << seed << ' ' << step << ' ' << each;
        }
      }
      order.end_step();
      if (!order.take_changed(changed)) known.clear();
    }
  }
}

TEST(AccessOrderTest, AProgramWithoutStepsRecordsABoundedNumberOfUses) {
  AccessOrder order;
  for (std::size_t use = 0; use < AccessOrder::kMostUses + 10; ++use)
    order.use(use);
  order.end_step();
  EXPECT_EQ(order.distance(AccessOrder::kMostUses - 1), AccessOrder::kMostUses - 1);
  EXPECT_EQ(order.distance(AccessOrder::kMostUses), AccessOrder::kUnknown);
}

/// What the queue has to do, by search.
class SearchedQueue {
 public:
  void use(Id id) {
    last_use_[id] = ++time_;
    queued_.insert(id);
    order_.use(id);
  }

  void end_step() { order_.end_step(); }

  void remove(Id id) { queued_.erase(id); }

  void put_back(Id id) { queued_.insert(id); }

  Id take() {
    const auto first = std::max_element(queued_.begin(), queued_.end(), [&](Id left, Id right) {
      if (order_.distance(left) != order_.distance(right))
        return order_.distance(left) < order_.distance(right);
      return last_use_[left] > last_use_[right];
    });
    const Id id = first == queued_.end() ? 0 : *first;
    queued_.erase(id);
    return id;
  }

 private:
  AccessOrder order_;
  std::uint64_t time_ = 0;
  std::map<Id, std::uint64_t> last_use_;
  std::set<Id> queued_;
};

TEST(OffloadQueueTest, ItTakesTheStorageWhoseNextUseIsFarthestAway) {
  for (unsigned seed = 0; seed < 60; ++seed) {
    std::mt19937 dice(seed);
    const Id ids = 3 + dice() % 30;
    OffloadQueue queue;
    SearchedQueue expected;
    std::map<Id, OffloadQueue::Slot> slots;
    std::map<OffloadQueue::Slot, Id> owners;
    const auto use = [&](Id id) {
      expected.use(id);
      const auto known = slots.find(id);
      if (known != slots.end()) return queue.use(known->second, true);
      slots[id] = queue.add(id);
      owners[slots[id]] = id;
    };
    auto step = random_step(dice, 60, ids);
    for (int round = 0; round < 8; ++round) {
      for (const Id id : step) {
        if (dice() % 8 == 0) continue;  // the step differs from the recorded one
        use(id);
        for (auto taken = dice() % 3; taken > 0; --taken) {
          const auto slot = queue.take();
          ASSERT_EQ(slot ? owners.at(*slot) : 0, expected.take()) << seed << ' ' << round;
          if (!slot) break;
          const Id owner = owners.at(*slot);
          if (dice() % 4 == 0) {
            queue.put_back(*slot);
            expected.put_back(owner);
          } else if (dice() % 6 == 0) {  // it ends, and its slot may belong to another one
            queue.remove(*slot);
            slots.erase(owner);
          }
        }
      }
      queue.end_step();
      expected.end_step();
      if (dice() % 3 == 0) step = random_step(dice, 60, ids);
    }
  }
}

TEST(OffloadQueueTest, OfChosenStoragesItTakesTheFarthestUnlessThatIsMuchNearerThanTheFirst) {
  for (unsigned seed = 0; seed < 60; ++seed) {
    std::mt19937 dice(seed);
    const Id ids = 3 + dice() % 30;
    const auto step = random_step(dice, 60, ids);
    OffloadQueue queue;
    AccessOrder order;
    std::map<Id, OffloadQueue::Slot> slots;
    std::map<OffloadQueue::Slot, Id> owners;
    for (int round = 0; round < 4; ++round) {
      for (const Id id : step) {
        order.use(id);
        if (!slots.contains(id)) {
          slots[id] = queue.add(id);
          owners[slots[id]] = id;
        } else {
          queue.use(slots[id], true);
        }
        const std::uint64_t odd = dice() % 4;  // every storage of a multiple, or none
        const auto chosen = [&](OffloadQueue::Slot slot) {
          return odd != 0 && owners.at(slot) % odd == 0;
        };
        std::uint64_t first = 0;
        std::uint64_t farthest = 0;
        bool any = false;
        for (const auto& [each, slot] : slots) {
          const auto uses = std::min<std::uint64_t>(order.distance(each), order.length());
          first = std::max(first, uses);
          if (!chosen(slot)) continue;
          any = true;
          farthest = std::max(farthest, uses);
        }
        const auto taken = queue.take_of(chosen);
        ASSERT_EQ(taken.has_value(), any && farthest >= first / 2) << seed << ' ' << round;
        if (!taken) continue;
        ASSERT_TRUE(chosen(*taken));
        ASSERT_EQ(std::min<std::uint64_t>(order.distance(owners.at(*taken)), order.length()),
                  farthest);
        queue.put_back(*taken);
      }
      queue.end_step();
      order.end_step();
    }
  }
}

TEST(OffloadQueueTest, ARefusedStorageIsInTheQueueAgainAfterARetryOrAUse) {
  OffloadQueue queue;
  const auto first = queue.add(1);
  const auto second = queue.add(2);
  ASSERT_EQ(queue.take(), first);
  queue.refuse(first);
  EXPECT_EQ(queue.take(), second);
  EXPECT_EQ(queue.take(), std::nullopt);
  EXPECT_TRUE(queue.retry_refused());
  EXPECT_FALSE(queue.retry_refused());
  EXPECT_EQ(queue.take(), first);
  queue.refuse(first);
  queue.use(first, true);
  EXPECT_EQ(queue.take(), first);
}

TEST(OffloadQueueTest, ItTakesOnlyWhatIsUsedAfterThatUse) {
  OffloadQueue queue;
  const auto first = queue.add(1);
  const auto second = queue.add(2);
  queue.end_step();
  const std::uint64_t now = queue.order().now();
  EXPECT_EQ(queue.order().at(now), 1U);
  EXPECT_EQ(queue.order().at(now + 1), 2U);
  EXPECT_EQ(queue.order().end(), now + 2);
  queue.use(first, true);  // from here it is used after the second one
  EXPECT_EQ(queue.next_use(first), now + 2);
  EXPECT_EQ(queue.take(now + 2), std::nullopt);
  EXPECT_EQ(queue.take(now + 1), first);
  EXPECT_EQ(queue.take(now + 1), std::nullopt);
  EXPECT_EQ(queue.take(now), second);
}

TEST(OffloadQueueTest, WhatLeftAfterAWriteIsExpectedToLeaveAfterThatWriteOfTheNextStep) {
  for (unsigned seed = 0; seed < 30; ++seed) {
    std::mt19937 dice(seed);
    const Id ids = 3 + dice() % 10;
    const auto step = random_step(dice, 40, ids);
    std::vector<OffloadQueue::Slot> slots(ids + 1);
    OffloadQueue queue;
    for (Id id = 1; id <= ids; ++id)
      slots[id] = queue.add(id);
    queue.end_step();
    std::vector<bool> left(step.size());
    for (int round = 0; round < 4; ++round) {
      std::vector<bool> leaves(step.size());
      for (std::size_t place = 0; place < step.size(); ++place) {
        queue.use(slots[step[place]], true);
        if (round > 0) {
          ASSERT_EQ(queue.is_leaving(slots[step[place]]), left[place]) << seed << ' ' << place;
        }
        leaves[place] = dice() % 3 == 0;
        if (leaves[place]) queue.leave(slots[step[place]]);
      }
      queue.end_step();
      // It may leave in the next step too, before that uses it.
      leaves.back() = true;
      queue.leave(slots[step.back()]);
      left = leaves;
    }
  }
}

TEST(OffloadQueueTest, AStorageIsLeavingFromItsLastWriteOnWhateverOtherUsesDiffer) {
  OffloadQueue queue;
  const auto state = queue.add(1);
  const auto other = queue.add(2);
  queue.end_step();
  queue.use(state, true);
  queue.use(other, false);
  queue.use(state, true);
  queue.use(other, false);
  queue.use(state, false);
  queue.leave(state);
  queue.end_step();
  queue.use(other, false);  // the last step did not begin with it
  queue.use(other, true);
  queue.use(state, true);
  EXPECT_FALSE(queue.is_leaving(state));
  queue.use(state, true);
  EXPECT_TRUE(queue.is_leaving(state));
  EXPECT_FALSE(queue.is_leaving(other));
}

TEST(OffloadQueueTest, AfterAStepOfWhichFewLeftUsesInTheSameStretchAreEquallyFar) {
  constexpr Id kIds = 80;
  OffloadQueue queue;
  std::vector<OffloadQueue::Slot> slots(kIds + 1);
  for (Id id = 1; id <= kIds; ++id)
    slots[id] = queue.add(id);
  queue.end_step(true);
  for (Id id = 1; id <= kIds; ++id)
    queue.use(slots[id], true);
  const auto coarse = queue.take();
  ASSERT_TRUE(coarse.has_value());
  EXPECT_NE(*coarse, slots[kIds]);  // used last, and farthest away
  EXPECT_GT(queue.next_use(*coarse), queue.next_use(slots[kIds / 2]));
  queue.put_back(*coarse);
  queue.end_step(false);
  EXPECT_EQ(queue.take(), slots[kIds]);
}

TEST(OffloadQueueTest, AStorageThatWasRemovedIsNeitherTakenNorPutBack) {
  OffloadQueue queue;
  const auto first = queue.add(1);
  ASSERT_EQ(queue.take(), first);
  queue.remove(first);
  queue.put_back(first);
  queue.refuse(first);
  EXPECT_FALSE(queue.retry_refused());
  EXPECT_EQ(queue.take(), std::nullopt);
  EXPECT_EQ(queue.add(2), first);
  queue.remove(first);  // before it was ranked
  EXPECT_EQ(queue.take(), std::nullopt);
}

}  // namespace
}  // namespace spillway
