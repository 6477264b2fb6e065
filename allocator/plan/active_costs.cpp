// SPDX-License-Identifier: Apache-2.0
#include "allocator/plan/active_costs.h"

#include <algorithm>
#include <bit>
#include <numeric>
#include <utility>

namespace spillway {

ActiveCosts::ActiveCosts(std::vector<Item> items)
    : items_(std::move(items)),
      rank_(items_.size()),
      per_byte_(items_.size() + 1),
      sums_(items_.size() + 1),
      highest_power_(std::bit_floor(items_.size())) {
  const auto per_byte = [&](std::size_t item) {
    return items_[item].bytes > 0 ? items_[item].seconds / items_[item].bytes : 0;
  };
  std::vector<std::size_t> order(items_.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](std::size_t left, std::size_t right) {
    return per_byte(left) < per_byte(right);
  });
  for (std::size_t rank = 1; rank <= order.size(); ++rank) {
    rank_[order[rank - 1]] = rank;
    per_byte_[rank] = per_byte(order[rank - 1]);
  }
}

void ActiveCosts::activate_all() {
  for (std::size_t item = 0; item < items_.size(); ++item)
    activate(item);
}

void ActiveCosts::deactivate_all() {
  std::fill(sums_.begin(), sums_.end(), Item{});
  total_ = {};
}

void ActiveCosts::change(std::size_t item, double sign) {
  if (items_[item].bytes <= 0) return;
  const double bytes = sign * items_[item].bytes;
  const double seconds = sign * items_[item].seconds;
  total_ = {total_.bytes + bytes, total_.seconds + seconds};
  for (std::size_t node = rank_[item]; node < sums_.size(); node += node & (~node + 1)) {
    sums_[node].bytes += bytes;
    sums_[node].seconds += seconds;
  }
}

double ActiveCosts::seconds(double bytes) const {
  if (bytes <= 0) return 0;
  if (bytes >= total_.bytes) return total_.seconds;
  std::size_t rank = 0;  // of the last item that is chosen whole
  Item chosen;
  for (std::size_t step = highest_power_; step > 0; step /= 2) {
    const std::size_t next = rank + step;
    if (next >= sums_.size() || chosen.bytes + sums_[next].bytes > bytes) continue;
    rank = next;
    chosen = {chosen.bytes + sums_[next].bytes, chosen.seconds + sums_[next].seconds};
  }
  return chosen.seconds + (bytes - chosen.bytes) * per_byte_[std::min(rank + 1, items_.size())];
}

}  // namespace spillway
