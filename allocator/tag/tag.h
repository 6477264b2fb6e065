// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "allocator/base/ids.h"
#include "allocator/base/result.h"

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

namespace spillway {

/// The id of a tag's name, constant for the life of the process. "" is TagId::kUntagged.
/// Threads: safe. At most 65536 names; beyond that kUntagged.
TagId intern_tag(std::string_view name);

/// The name of an id from intern_tag, byte for byte; C programs may pass any bytes.
std::string tag_name(TagId tag);

/// The name for display, as valid UTF-8 (valid_utf8).
std::string shown_tag(TagId tag);

/// The tag of this thread's allocations: the program's innermost open scope, else the innermost
/// role, else kUntagged. Takes no lock.
TagId current_tag();

/// The program's innermost open scope on this thread, ignoring roles.
TagId current_scope();

/// Called on a thread whose current tag changes, with its name; "" if none is left. One per
/// process; null: none.
/// Threads: safe. For scopes that are already open, it is called when they end.
using TagWatcher = void (*)(const std::string& name);
void watch_tags(TagWatcher watcher);

/// Opens a tag on this thread for a scope; scopes nest.
/// Threads: must end on the thread that began it.
class TagScope {
 public:
  explicit TagScope(TagId tag);
  ~TagScope();
  TagScope(const TagScope&) = delete;
  TagScope& operator=(const TagScope&) = delete;

 private:
  TagId outer_;
};

/// Opens `name` within this thread's innermost scope: "mlp", then "inner", is "mlp/inner".
/// Errors: as check_tag_name for the whole path; nothing is opened then.
Result<TagId> push_tag(std::string_view name);

/// Ends the last scope of push_tag on this thread; false if none is open.
bool pop_tag();

/// Sets this thread's role, a tag that applies only outside the program's scopes. Returns the
/// previous role, to be restored later.
TagId exchange_role(TagId role);

/// Whether Spillway assigns this name itself: "", and all names whose first component is
/// "parameter", "gradient", "optimizer", "input", "workspace" or "activation".
bool is_role(std::string_view name);

/// In bytes, including the enclosing path.
inline constexpr std::size_t kLongestTag = 256;

/// Errors: kInvalidArgument for an invalid path. A path consists of components joined by "/", none
/// empty, without "*" and control characters, of at most kLongestTag bytes.
Status check_tag_name(std::string_view name);

/// Whether `path`, or one of its parents, matches `pattern`, component by component. In a component
/// "*" matches any run of characters; "**" alone matches any number of components, including none.
/// "activation" matches "activation/layers.0" and not "activations"; "activation/layers.*" matches
/// "activation/layers.0"; "**/mlp" matches "encoder/1/mlp". The empty pattern matches the empty
/// path only.
bool tag_matches(std::string_view pattern, std::string_view path);

/// Whether one of the patterns matches.
bool any_tag_matches(std::span<const std::string> patterns, std::string_view path);

}  // namespace spillway
