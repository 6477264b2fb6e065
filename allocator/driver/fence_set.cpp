// SPDX-License-Identifier: Apache-2.0
#include "allocator/driver/fence_set.h"

namespace spillway::driver {

void FenceSet::add_to_others(Fence fence) {
  Fence* const first = many_.empty() ? few_.data() : many_.data();
  Fence* const last = first + (end() - begin());
  Fence* const known =
      std::find_if(first, last, [&](Fence each) { return each.timeline == fence.timeline; });
  if (known != last) {
    known->point = std::max(known->point, fence.point);
  } else if (many_.empty() && count_ < few_.size()) {
    few_.at(count_++) = fence;
  } else {
    if (many_.empty()) many_.assign(begin(), end());
    many_.push_back(fence);
    count_ = 0;
  }
}

void FenceSet::add(const FenceSet& other) {
  for (const Fence fence : other)
    add(fence);
}

void FenceSet::clear() {
  count_ = 0;
  many_.clear();
}

bool FenceSet::drop_passed() {
  const auto has_passed = [](Fence fence) {
    return Timeline::passed(fence);
  };
  Fence* const few_end = few_.data() + count_;
  count_ = static_cast<std::size_t>(std::remove_if(few_.data(), few_end, has_passed) - few_.data());
  std::erase_if(many_, has_passed);
  return empty();
}

Result<std::uint64_t> FenceSet::wait(Stream waiter) const {
  for (const Fence fence : *this) {
    SPILLWAY_RETURN_IF_ERROR(Timeline::wait(waiter, fence));
  }
  return static_cast<std::uint64_t>(end() - begin());
}

Status FenceSet::wait_sync() const {
  for (const Fence fence : *this) {
    SPILLWAY_RETURN_IF_ERROR(Timeline::wait_sync(fence));
  }
  return {};
}

}  // namespace spillway::driver
