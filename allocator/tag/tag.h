// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "allocator/base/ids.h"
#include "allocator/base/result.h"

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

namespace spillway {

/// The id of a tag's name, the same for the life of the process. "" is TagId::kUntagged.
/// Threads: safe. At most 65536 names; beyond that kUntagged.
TagId intern_tag(std::string_view name);

/// The name of an id made by intern_tag, byte by byte as given: C programs may give any.
std::string tag_name(TagId tag);

/// The same for display, as valid UTF-8 (valid_utf8).
std::string shown_tag(TagId tag);

/// What this thread's memory is for: the innermost scope that the program has opened on it, else
/// the innermost role, else kUntagged. Takes no lock.
TagId current_tag();

/// The innermost scope that the program has opened on this thread, without roles.
TagId current_scope();

/// Told, on a thread whose current tag changes, of its name; "" where none is left. One for the
/// process; null for none. Threads: safe. Scopes that are open already are reported when they end.
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

/// Opens `name` inside this thread's innermost scope: "mlp", then "inner", is "mlp/inner".
/// Errors: as check_tag_name for the whole path, and nothing is opened.
Result<TagId> push_tag(std::string_view name);

/// Ends what push_tag opened last on this thread; false where nothing is open.
bool pop_tag();

/// Sets this thread's role, a tag that holds only where the program has opened no scope, and
/// returns the one before it, to be set again.
TagId exchange_role(TagId role);

/// Whether Spillway gives this name by itself: "", and all names that begin with "parameter",
/// "gradient", "optimizer", "input", "workspace" or "activation" as a component.
bool is_role(std::string_view name);

/// In bytes, with all that it lies in.
inline constexpr std::size_t kLongestTag = 256;

/// Errors: kInvalidArgument for a name that is no path: components joined by "/", none of them
/// empty, without "*" and control characters, of at most kLongestTag bytes.
Status check_tag_name(std::string_view name);

/// Whether `path`, or one that it lies in, fits `pattern`, component by component. In a component
/// "*" stands for any run of characters; "**" alone for any number of components, none included.
/// "activation" fits "activation/layers.0" and not "activations"; "activation/layers.*" fits
/// "activation/layers.0"; "**/mlp" fits "encoder/1/mlp". The empty pattern fits the empty path
/// only.
bool tag_matches(std::string_view pattern, std::string_view path);

/// Whether one of the patterns does.
bool any_tag_matches(std::span<const std::string> patterns, std::string_view path);

}  // namespace spillway
