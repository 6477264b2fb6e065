// SPDX-License-Identifier: Apache-2.0
#include "allocator/heap/placement.h"

#include <algorithm>
#include <numeric>
#include <optional>

namespace spillway {
namespace {

struct Placed {
  Bytes begin;
  Bytes end;
  const Lifetime* block;
};

/// The smallest gap that is large enough, between the blocks that live at the same time; else after
/// them. Requires: `placed` is in order of `begin`.
Bytes best_fit(const std::vector<Placed>& placed, const Lifetime& block) {
  std::optional<Bytes> best;
  Bytes best_gap;
  Bytes end;
  for (const Placed& each : placed) {
    if (!each.block->meets(block)) continue;
    if (each.begin > end) {
      const Bytes gap = each.begin - end;
      if (gap >= block.size && (!best || gap < best_gap)) {
        best = end;
        best_gap = gap;
      }
    }
    end = std::max(end, each.end);
  }
  return best.value_or(end);
}

Placement place_in_order(std::span<const Lifetime> blocks,
                         const std::vector<std::uint32_t>& order) {
  Placement placement;
  placement.offsets.resize(blocks.size());
  std::vector<Placed> placed;
  for (const std::uint32_t index : order) {
    const Lifetime& block = blocks[index];
    const Bytes begin = best_fit(placed, block);
    placement.offsets[index] = begin;
    placement.size = std::max(placement.size, begin + block.size);
    const auto after =
        std::upper_bound(placed.begin(), placed.end(), begin, [](Bytes at, const Placed& each) {
          return at < each.begin;
        });
    placed.insert(after, {begin, begin + block.size, &block});
  }
  return placement;
}

/// How often each order is tried: a time by the square of `blocks`, bounded by about a second.
std::size_t rounds(std::size_t blocks) {
  constexpr std::size_t kPairs = 128U << 20U;
  constexpr std::size_t kMost = 64;
  return std::clamp<std::size_t>(kPairs / std::max<std::size_t>(blocks * blocks, 1), 1, kMost);
}

}  // namespace

Bytes most_live(std::span<const Lifetime> blocks) {
  struct Change {
    std::uint32_t at;
    bool born;
    Bytes size;
  };

  std::vector<Change> changes;
  for (const Lifetime& block : blocks) {
    changes.push_back({block.born, true, block.size});
    changes.push_back({block.died, false, block.size});
  }
  std::sort(changes.begin(), changes.end(), [](const Change& left, const Change& right) {
    if (left.at != right.at) return left.at < right.at;
    return !left.born && right.born;  // deaths first
  });
  Bytes live;
  Bytes most;
  for (const Change& change : changes) {
    live = change.born ? live + change.size : live - change.size;
    most = std::max(most, live);
  }
  return most;
}

Placement place(std::span<const Lifetime> blocks) {
  const Bytes least = most_live(blocks);
  // Less than that is not worth looking for.
  const Bytes enough = least + Bytes{least.count() / 1024};
  const auto area = [](const Lifetime& block) {
    return static_cast<double>(block.size.count()) * (block.died - block.born);
  };
  std::vector<std::uint32_t> order(blocks.size());
  std::iota(order.begin(), order.end(), 0U);
  std::stable_sort(order.begin(), order.end(), [&](std::uint32_t left, std::uint32_t right) {
    return blocks[left].born < blocks[right].born;
  });
  std::vector<std::vector<std::uint32_t>> orders{order};
  for (const bool by_area : {false, true}) {
    std::stable_sort(order.begin(), order.end(), [&](std::uint32_t left, std::uint32_t right) {
      if (by_area) return area(blocks[left]) > area(blocks[right]);
      return blocks[left].size > blocks[right].size;
    });
    orders.push_back(order);
  }

  std::optional<Placement> best;
  for (std::size_t round = 0; round < rounds(blocks.size()); ++round) {
    for (std::vector<std::uint32_t>& each : orders) {
      Placement placement = place_in_order(blocks, each);
      std::stable_partition(each.begin(), each.end(), [&](std::uint32_t index) {
        return placement.offsets[index] + blocks[index].size > least;
      });
      if (!best || placement.size < best->size) best = std::move(placement);
      if (best->size <= enough) return *std::move(best);
    }
  }
  return *std::move(best);
}

}  // namespace spillway
