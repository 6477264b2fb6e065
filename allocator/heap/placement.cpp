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

enum class Fit : std::uint8_t {
  kBest,   // the smallest gap that is large enough
  kFirst,  // the first one
};

/// A gap between the blocks with overlapping lifetimes; else after them.
/// Requires: `placed` is in order of `begin`.
Bytes fit(const std::vector<Placed>& placed, const Lifetime& block, std::uint32_t period, Fit how) {
  std::optional<Bytes> best;
  Bytes best_gap;
  Bytes end;
  for (const Placed& each : placed) {
    if (!each.block->meets(block, period)) continue;
    if (each.begin > end) {
      const Bytes gap = each.begin - end;
      if (gap >= block.size && (!best || gap < best_gap)) {
        best = end;
        best_gap = gap;
        if (how == Fit::kFirst) break;
      }
    }
    end = std::max(end, each.end);
  }
  return best.value_or(end);
}

using Order = std::vector<std::uint32_t>;

Placement place_in_order(std::span<const Lifetime> blocks,
                         const Order& order,
                         std::uint32_t period,
                         Fit how) {
  Placement placement;
  placement.offsets.resize(blocks.size());
  std::vector<Placed> placed;
  for (const std::uint32_t index : order) {
    const Lifetime& block = blocks[index];
    const Bytes begin = fit(placed, block, period, how);
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

/// Number of rounds, from the one with the best placement on, after which no more are tried.
constexpr std::size_t kMaxIdle = 8;

/// Number of tries of each order. The time is quadratic in `blocks`, bounded by about a second.
std::size_t rounds(std::size_t blocks) {
  constexpr std::size_t kPairs = 64U << 20U;
  constexpr std::size_t kMax = 64;
  return std::clamp<std::size_t>(kPairs / std::max<std::size_t>(blocks * blocks, 1), 1, kMax);
}

/// The orders that blocks are placed in first: by birth, size, and bytes times time.
std::vector<Order> first_orders(std::span<const Lifetime> blocks) {
  const auto area = [](const Lifetime& block) {
    return static_cast<double>(block.size.count()) * (block.died - block.born);
  };
  Order order(blocks.size());
  std::iota(order.begin(), order.end(), 0U);
  std::stable_sort(order.begin(), order.end(), [&](std::uint32_t left, std::uint32_t right) {
    return blocks[left].born < blocks[right].born;
  });
  std::vector<Order> orders{order};
  for (const bool by_area : {false, true}) {
    std::stable_sort(order.begin(), order.end(), [&](std::uint32_t left, std::uint32_t right) {
      if (by_area) return area(blocks[left]) > area(blocks[right]);
      return blocks[left].size > blocks[right].size;
    });
    orders.push_back(order);
  }
  return orders;
}

/// The birth or the end of a block.
struct Change {
  std::uint32_t at;
  bool born;
  Bytes size;
};

/// Of one period, in order of time, ends first. A block that outlives its period is born at 0 too.
std::vector<Change> changes_of(std::span<const Lifetime> blocks, std::uint32_t period) {
  std::vector<Change> changes;
  for (const Lifetime& block : blocks) {
    changes.push_back({block.born, true, block.size});
    changes.push_back({block.died, false, block.size});
    if (block.died <= period) continue;
    changes.back().at -= period;  // of the block allocated a period earlier
    changes.push_back({0, true, block.size});
  }
  std::sort(changes.begin(), changes.end(), [](const Change& left, const Change& right) {
    if (left.at != right.at) return left.at < right.at;
    return !left.born && right.born;  // frees first
  });
  return changes;
}

}  // namespace

Bytes peak_allocated(std::span<const Lifetime> blocks, std::uint32_t period) {
  Bytes allocated;
  Bytes most;
  for (const Change& change : changes_of(blocks, period)) {
    allocated = change.born ? allocated + change.size : allocated - change.size;
    most = std::max(most, allocated);
  }
  return most;
}

Placement place(std::span<const Lifetime> blocks, std::uint32_t period) {
  const Bytes least = peak_allocated(blocks, period);
  // Smaller improvements are not worth the search.
  const Bytes enough = least + Bytes{least.count() / 1024};
  std::optional<Placement> best;
  for (const Fit how : {Fit::kBest, Fit::kFirst}) {
    std::vector<Order> orders = first_orders(blocks);
    std::size_t left = kMaxIdle;
    for (std::size_t round = 0; round < rounds(blocks.size()) && left > 0; ++round, --left) {
      for (Order& each : orders) {
        Placement placement = place_in_order(blocks, each, period, how);
        std::stable_partition(each.begin(), each.end(), [&](std::uint32_t index) {
          return placement.offsets[index] + blocks[index].size > least;
        });
        if (!best || placement.size < best->size) {
          best = std::move(placement);
          left = kMaxIdle;
        }
        if (best->size <= enough) return *std::move(best);
      }
    }
  }
  return *std::move(best);
}

namespace {

/// A page for blocks in order of allocation; blocks that outlive the period come last.
struct Page {
  std::uint32_t free_from = 0;
  std::uint32_t free_until = kOnce;  // at that time a block that outlives the period is allocated

  [[nodiscard]] bool is_free(const Lifetime& block) const {
    return free_from <= block.born && block.died <= free_until;
  }
};

/// The pages for a block: the smallest run of free ones that is large enough. Otherwise free ones
/// that are needed again soonest, or new ones. Extends `pages` if necessary.
std::vector<std::uint32_t> pages_for(std::vector<Page>& pages,
                                     const Lifetime& block,
                                     std::size_t wanted) {
  std::vector<std::uint32_t> free;
  std::optional<std::size_t> best;  // index in `free` of the start of a run
  std::size_t best_run = 0;
  for (std::size_t begin = 0, at = 0; at <= pages.size(); ++at) {
    if (at < pages.size() && pages[at].is_free(block)) {
      free.push_back(static_cast<std::uint32_t>(at));
      continue;
    }
    const std::size_t run = free.size() - begin;
    if (run >= wanted && (!best || run < best_run)) {
      best = begin;
      best_run = run;
    }
    begin = free.size();
  }
  if (best) {
    const auto begin = free.begin() + static_cast<std::ptrdiff_t>(*best);
    return {begin, begin + static_cast<std::ptrdiff_t>(wanted)};
  }
  std::stable_sort(free.begin(), free.end(), [&](std::uint32_t left, std::uint32_t right) {
    return pages[left].free_until < pages[right].free_until;
  });
  for (; free.size() < wanted; pages.emplace_back())
    free.push_back(static_cast<std::uint32_t>(pages.size()));
  free.resize(wanted);
  std::sort(free.begin(), free.end());
  return free;
}

/// The time at which the fewest bytes are allocated.
std::uint32_t time_of_fewest_bytes(std::span<const Lifetime> blocks, std::uint32_t period) {
  std::uint32_t found = 0;
  std::optional<Bytes> fewest;
  Bytes allocated;
  for (const Change& change : changes_of(blocks, period)) {
    allocated = change.born ? allocated + change.size : allocated - change.size;
    if (change.born || (fewest && allocated >= *fewest)) continue;
    fewest = allocated;
    found = change.at % period;
  }
  return found;
}

/// The same lifetimes in a period that begins at `begin`.
std::vector<Lifetime> beginning_at(std::uint32_t begin,
                                   std::span<const Lifetime> blocks,
                                   std::uint32_t period) {
  std::vector<Lifetime> rotated(blocks.begin(), blocks.end());
  for (Lifetime& each : rotated) {
    const std::uint32_t born = each.born < begin ? each.born + period - begin : each.born - begin;
    each.died = born + (each.died - each.born);
    each.born = born;
  }
  return rotated;
}

/// Blocks of whole pages, in order of allocation. Needs no more pages than the peak at one time,
/// plus those of blocks that outlive the period, which are placed first. The period therefore
/// begins where the fewest bytes are allocated.
PagedPlacement place_by_birth(std::span<const Lifetime> lifetimes,
                              std::uint32_t period,
                              Bytes page) {
  const std::vector<Lifetime> blocks =
      beginning_at(time_of_fewest_bytes(lifetimes, period), lifetimes, period);
  PagedPlacement placement;
  placement.offsets.resize(blocks.size());
  placement.pages.resize(blocks.size());
  Order order = first_orders(blocks).front();
  std::stable_partition(
      order.begin(), order.end(), [&](std::uint32_t each) { return blocks[each].died > period; });
  std::vector<Page> pages;
  for (const std::uint32_t each : order) {
    const Lifetime& block = blocks[each];
    std::vector<std::uint32_t> got = pages_for(pages, block, block.size.count() / page.count());
    for (const std::uint32_t at : got) {
      Page& taken = pages[at];
      if (block.died > period) {
        taken = {block.died - period, block.born};
      } else {
        taken.free_from = block.died;
      }
    }
    if (got.back() - got.front() + 1 == got.size()) {
      placement.offsets[each] = Bytes{got.front() * page.count()};
    } else {
      placement.pages[each] = std::move(got);
    }
  }
  placement.size = Bytes{pages.size() * page.count()};
  return placement;
}

/// Places blocks smaller than a page at the beginning, and the others in whole pages after them.
PagedPlacement place_apart(std::span<const Lifetime> blocks, std::uint32_t period, Bytes page) {
  std::vector<Lifetime> small;
  std::vector<Lifetime> large;
  for (const Lifetime& block : blocks) {
    (block.size < page ? small : large).push_back(block);
    if (block.size >= page) large.back().size = block.size.rounded_up(page);
  }
  const Placement packed = place(small, period);
  PagedPlacement paged = place_by_birth(large, period, page);
  const Bytes begin = packed.size.rounded_up(page);
  const auto first_page = static_cast<std::uint32_t>(begin.count() / page.count());
  PagedPlacement both{{}, {}, begin + paged.size};
  std::size_t next_small = 0;
  std::size_t next_large = 0;
  for (const Lifetime& block : blocks) {
    if (block.size < page) {
      both.offsets.push_back(packed.offsets[next_small++]);
      both.pages.emplace_back();
      continue;
    }
    both.offsets.push_back(begin + paged.offsets[next_large]);
    both.pages.push_back(std::move(paged.pages[next_large++]));
    for (std::uint32_t& each : both.pages.back())
      each += first_page;
  }
  return both;
}

}  // namespace

PagedPlacement place_in_pages(std::span<const Lifetime> blocks, std::uint32_t period, Bytes page) {
  Placement whole = place(blocks, period);
  PagedPlacement paged = place_apart(blocks, period, page);
  if (paged.size < whole.size) return paged;
  return {std::move(whole.offsets),
          std::vector<std::vector<std::uint32_t>>(blocks.size()),
          whole.size.rounded_up(page)};
}

}  // namespace spillway
