// SPDX-License-Identifier: Apache-2.0
#include "allocator/tag/tag.h"

#include "allocator/base/check.h"
#include "allocator/base/mutex.h"
#include "allocator/base/utf8.h"

#include <atomic>
#include <cstdint>
#include <deque>
#include <unordered_map>
#include <vector>

namespace spillway {
namespace {

constexpr std::size_t kMaxNames = 65536;

/// Names by id, and the inverse. A deque never moves its strings, so the keys may refer to them.
class Names {
 public:
  TagId intern(std::string_view name) {
    const Lock lock(mutex_);
    if (const auto known = ids_.find(name); known != ids_.end()) return known->second;
    if (names_.size() == kMaxNames) return TagId::kUntagged;
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
  static auto* const names = new Names;  // never freed: tag names are used until the process ends
  return *names;
}

/// The open tags of this thread.
struct Innermost {
  TagId scope = TagId::kUntagged;
  TagId role = TagId::kUntagged;

  [[nodiscard]] TagId current() const { return scope == TagId::kUntagged ? role : scope; }
};

// Two ids without a constructor, so that a thread's first access costs no more than later ones.
// Read by every allocation; so few bytes always fit in the static TLS block.
[[gnu::tls_model("initial-exec")]] thread_local constinit Innermost here;
std::atomic<TagWatcher> watched_by{nullptr};

void set(Innermost next) {
  const TagId before = here.current();
  here = next;
  const TagWatcher watcher = watched_by.load(std::memory_order_relaxed);
  if (watcher != nullptr && before != next.current()) watcher(names().name(next.current()));
}

/// The scopes around those that push_tag opened on this thread.
std::vector<TagId>& pushed() {
  thread_local std::vector<TagId> outer;
  return outer;
}

}  // namespace

TagId intern_tag(std::string_view name) {
  return names().intern(name);
}

std::string tag_name(TagId tag) {
  return names().name(tag);
}

std::string shown_tag(TagId tag) {
  return valid_utf8(tag_name(tag));
}

TagId current_tag() {
  return here.current();
}

TagId current_scope() {
  return here.scope;
}

void watch_tags(TagWatcher watcher) {
  watched_by.store(watcher);
}

TagScope::TagScope(TagId tag) : outer_(here.scope) {
  set({tag, here.role});
}

TagScope::~TagScope() {
  set({outer_, here.role});
}

Result<TagId> push_tag(std::string_view name) {
  const std::string outer = tag_name(here.scope);
  const std::string path = (outer.empty() ? "" : outer + "/") + std::string(name);
  SPILLWAY_RETURN_IF_ERROR(check_tag_name(path));
  const TagId tag = intern_tag(path);
  pushed().push_back(here.scope);
  set({tag, here.role});
  return tag;
}

bool pop_tag() {
  if (pushed().empty()) return false;
  set({pushed().back(), here.role});
  pushed().pop_back();
  return true;
}

TagId exchange_role(TagId role) {
  const TagId before = here.role;
  set({here.scope, role});
  return before;
}

}  // namespace spillway
