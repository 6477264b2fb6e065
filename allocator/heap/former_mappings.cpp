// SPDX-License-Identifier: Apache-2.0
#include "allocator/heap/former_mappings.h"

#include <algorithm>
#include <iterator>
#include <vector>

namespace spillway {

FormerMappings::~FormerMappings() {
  const driver::CurrentDevice current(*device_.api, device_.context);
  const driver::OutsideCaptures outside(*device_.api);
  for (const auto& [at, each] : mappings_)
    device_.api->MemUnmap(at.address(), each.mapping.size.count());
}

void FormerMappings::add(driver::DevicePtr at, const Mapping& mapping) {
  mappings_.emplace(at, Numbered{mapping, next_});
  by_age_.emplace(next_++, at);
  by_chunk_.emplace(mapping.chunk, at);
}

/// The first one that overlaps `where` or comes after it.
FormerMappings::Mappings::const_iterator FormerMappings::first_in(Range where) const {
  const auto next = mappings_.upper_bound(where.begin);
  if (next == mappings_.begin()) return next;
  const auto previous = std::prev(next);
  return previous->first + previous->second.mapping.size > where.begin ? previous : next;
}

bool FormerMappings::in_use(const Mapping& mapping) const {
  return std::any_of(mapping.uses.begin(), mapping.uses.end(), [&](driver::Fence use) {
    const auto known = not_passed_.find(use.timeline);
    if (known != not_passed_.end() && use.point >= known->second) return true;
    if (driver::Timeline::passed(use)) return false;
    not_passed_[use.timeline] = use.point;
    return true;
  });
}

bool FormerMappings::in_use(Range where) const {
  for (auto each = first_in(where); each != mappings_.end() && each->first < where.end(); ++each)
    if (in_use(each->second.mapping)) return true;
  return false;
}

bool FormerMappings::in_use(CUmemGenericAllocationHandle chunk) const {
  const auto [first, last] = by_chunk_.equal_range(chunk);
  return std::any_of(
      first, last, [&](const auto& each) { return in_use(mappings_.at(each.second).mapping); });
}

Status FormerMappings::clear(Range where) {
  for (auto each = first_in(where); each != mappings_.end() && each->first < where.end();)
    SPILLWAY_RETURN_IF_ERROR(unmap(each++));
  return {};
}

Status FormerMappings::clear(CUmemGenericAllocationHandle chunk) {
  for (auto each = by_chunk_.find(chunk); each != by_chunk_.end(); each = by_chunk_.find(chunk))
    SPILLWAY_RETURN_IF_ERROR(unmap(mappings_.find(each->second)));
  return {};
}

void FormerMappings::clear_passed() {
  look_again();
  while (!by_age_.empty()) {
    const auto oldest = mappings_.find(by_age_.begin()->second);
    if (in_use(oldest->second.mapping) || !unmap(oldest).ok()) return;
  }
}

Status FormerMappings::unmap(Mappings::const_iterator mapping) {
  if (in_use(mapping->second.mapping))
    SPILLWAY_RETURN_IF_ERROR(mapping->second.mapping.uses.wait_sync());
  const driver::CurrentDevice current(*device_.api, device_.context);
  const driver::OutsideCaptures outside(*device_.api);
  SPILLWAY_RETURN_IF_ERROR(SPILLWAY_CALL(
      *device_.api, MemUnmap, mapping->first.address(), mapping->second.mapping.size.count()));
  const auto [first, last] = by_chunk_.equal_range(mapping->second.mapping.chunk);
  by_chunk_.erase(
      std::find_if(first, last, [&](const auto& each) { return each.second == mapping->first; }));
  by_age_.erase(mapping->second.number);
  mappings_.erase(mapping);
  return {};
}

Status FormerMappings::allow(std::span<const CUmemAccessDesc> access) const {
  const driver::CurrentDevice current(*device_.api, device_.context);
  const driver::OutsideCaptures outside(*device_.api);
  for (const auto& [at, each] : mappings_) {
    SPILLWAY_RETURN_IF_ERROR(SPILLWAY_CALL(*device_.api,
                                           MemSetAccess,
                                           at.address(),
                                           each.mapping.size.count(),
                                           access.data(),
                                           access.size()));
  }
  return {};
}

}  // namespace spillway
