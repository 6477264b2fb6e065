// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "allocator/base/ids.h"

#include <string>
#include <string_view>

namespace spillway {

/// The id of a tag's name, the same for the life of the process. "" is TagId::kUntagged.
/// Threads: safe. At most 65536 names; beyond that kUntagged.
TagId intern_tag(std::string_view name);

/// The name of an id made by intern_tag.
std::string tag_name(TagId tag);

/// The innermost tag open on this thread, kUntagged where none is.
TagId current_tag();

/// Told, on a thread whose innermost tag changes, of its name; "" where none is left. One for the
/// process; null for none. Threads: safe. Scopes that are open already are told when they end.
using TagWatcher = void (*)(const std::string& name);
void watch_tags(TagWatcher watcher);

/// Opens a tag on this thread for a scope; scopes nest. Threads: ended on the thread that began it.
class TagScope {
 public:
  explicit TagScope(TagId tag);
  ~TagScope();
  TagScope(const TagScope&) = delete;
  TagScope& operator=(const TagScope&) = delete;

 private:
  TagId outer_;
};

}  // namespace spillway
