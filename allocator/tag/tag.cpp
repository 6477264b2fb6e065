// SPDX-License-Identifier: Apache-2.0
#include "allocator/tag/tag.h"

#include "allocator/base/check.h"
#include "allocator/base/mutex.h"

#include <atomic>
#include <cstdint>
#include <deque>
#include <unordered_map>

namespace spillway {
namespace {

constexpr std::size_t kMostNames = 65536;

/// Names by id, and back. A deque never moves its strings, so the keys may look at them.
class Names {
 public:
  TagId intern(std::string_view name) {
    const Lock lock(mutex_);
    if (const auto known = ids_.find(name); known != ids_.end()) return known->second;
    if (names_.size() == kMostNames) return TagId::kUntagged;
    const auto id = static_cast<TagId>(static_cast<std::uint32_t>(names_.size()));
    ids_.emplace(names_.emplace_back(name), id);
    return id;
  }

  std::string name(TagId tag) {
    const Lock lock(mutex_);
    const auto index = static_cast<std::size_t>(tag);
    SPILLWAY_CHECK(index < names_.size());
    return names_[index];
  }

 private:
  Mutex mutex_;
  std::deque<std::string> names_ SPILLWAY_GUARDED_BY(mutex_){""};
  std::unordered_map<std::string_view, TagId> ids_ SPILLWAY_GUARDED_BY(mutex_){
      {"", TagId::kUntagged}};
};

Names& names() {
  static auto* const names = new Names;  // never freed: tags may be named until the process ends
  return *names;
}

thread_local TagId innermost = TagId::kUntagged;
std::atomic<TagWatcher> watched_by{nullptr};

void enter(TagId tag) {
  innermost = tag;
  if (const TagWatcher watcher = watched_by.load()) watcher(names().name(tag));
}

}  // namespace

TagId intern_tag(std::string_view name) {
  return names().intern(name);
}

std::string tag_name(TagId tag) {
  return names().name(tag);
}

TagId current_tag() {
  return innermost;
}

void watch_tags(TagWatcher watcher) {
  watched_by.store(watcher);
}

TagScope::TagScope(TagId tag) : outer_(innermost) {
  enter(tag);
}

TagScope::~TagScope() {
  enter(outer_);
}

}  // namespace spillway
