// SPDX-License-Identifier: Apache-2.0
#include "allocator/device/evictable.h"

#include "allocator/tag/tag.h"

#include <algorithm>

namespace spillway {
namespace {

bool remove_one(std::vector<std::string>& patterns, std::string_view pattern) {
  const auto found = std::find(patterns.begin(), patterns.end(), pattern);
  if (found == patterns.end()) return false;
  patterns.erase(found);
  return true;
}

}  // namespace

Status Evictable::allow(std::string_view pattern) {
  if (pattern.empty()) {
    return SPILLWAY_ERROR(
        Code::kInvalidArgument,
        "eviction of \"\": memory without a tag cannot be evicted, because Spillway does "
        "not know when it is unused. Allocate it under a tag.");
  }
  const Lock lock(mutex_);
  allowed_.emplace_back(pattern);
  return {};
}

Status Evictable::forbid(std::string_view pattern) {
  const Lock lock(mutex_);
  if (remove_one(allowed_, pattern)) return {};
  return SPILLWAY_ERROR(Code::kNotReady,
                        "eviction of \"" + std::string(pattern) +
                            "\" is not allowed at present. Allow it before forbidding it.");
}

void Evictable::pin(std::string_view pattern) {
  const Lock lock(mutex_);
  pinned_.emplace_back(pattern);
}

void Evictable::unpin(std::string_view pattern) {
  const Lock lock(mutex_);
  remove_one(pinned_, pattern);
}

bool Evictable::allows(TagId tag) const {
  const std::string path = tag_name(tag);
  const Lock lock(mutex_);
  return any_tag_matches(allowed_, path) && !any_tag_matches(pinned_, path);
}

}  // namespace spillway
