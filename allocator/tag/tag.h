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
