// SPDX-License-Identifier: Apache-2.0
#include "allocator/tag/tag.h"

#include <algorithm>
#include <array>
#include <string>
#include <utility>
#include <vector>

namespace spillway {
namespace {

std::vector<std::string_view> components(std::string_view path) {
  std::vector<std::string_view> parts;
  while (true) {
    const std::size_t slash = path.find('/');
    parts.push_back(path.substr(0, slash));
    if (slash == std::string_view::npos) return parts;
    path.remove_prefix(slash + 1);
  }
}

/// Whether `text` matches `pattern`, in which "*" matches any run of characters. Backtracks to the
/// last star only, so the time is at most the product of the lengths.
bool component_fits(std::string_view pattern, std::string_view text) {
  std::size_t p = 0;
  std::size_t t = 0;
  std::size_t star = std::string_view::npos;
  std::size_t retry = 0;
  while (t < text.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      retry = t;
    } else if (p < pattern.size() && pattern[p] == text[t]) {
      ++p;
      ++t;
    } else if (star != std::string_view::npos) {
      p = star + 1;
      t = ++retry;
    } else {
      return false;
    }
  }
  return pattern.find_first_not_of('*', p) == std::string_view::npos;
}

}  // namespace

bool tag_matches(std::string_view pattern, std::string_view path) {
  if (pattern.empty() || path.empty()) return pattern == path;
  const auto wanted = components(pattern);
  const auto given = components(path);
  // reach[i]: the pattern's components so far match the first i of the path.
  std::vector<bool> reach(given.size() + 1, false);
  reach[0] = true;
  for (const std::string_view part : wanted) {
    std::vector<bool> next(reach.size(), false);
    for (std::size_t i = 0; i < reach.size(); ++i) {
      if (part == "**") {
        next[i] = reach[i] || (i > 0 && next[i - 1]);
      } else {
        next[i] = i > 0 && reach[i - 1] && component_fits(part, given[i - 1]);
      }
    }
    reach = std::move(next);
  }
  return std::find(reach.begin(), reach.end(), true) != reach.end();
}

bool any_tag_matches(std::span<const std::string> patterns, std::string_view path) {
  return std::any_of(patterns.begin(), patterns.end(), [&](const std::string& pattern) {
    return tag_matches(pattern, path);
  });
}

bool is_role(std::string_view name) {
  constexpr std::array<std::string_view, 6> kRoles = {
      "parameter", "gradient", "optimizer", "input", "workspace", "activation"};
  const std::string_view first = name.substr(0, name.find('/'));
  return name.empty() || std::find(kRoles.begin(), kRoles.end(), first) != kRoles.end();
}

Status check_tag_name(std::string_view name) {
  constexpr std::string_view kRules =
      "expected names joined by \"/\", none of them empty, without \"*\" and control characters, "
      "of "
      "at most 256 bytes in all, such as \"encoder/mlp\"";
  if (name.size() > kLongestTag) {
    return SPILLWAY_ERROR(
        Code::kInvalidArgument,
        "a tag of " + std::to_string(name.size()) + " bytes: " + std::string(kRules));
  }
  const auto control = [](char letter) {
    const auto code = static_cast<unsigned char>(letter);
    return code < 0x20 || code == 0x7F;
  };
  bool good =
      name.find('*') == std::string_view::npos && std::none_of(name.begin(), name.end(), control);
  for (const std::string_view part : components(name))
    good = good && !part.empty();
  if (good) return {};
  std::string shown(name);
  std::replace_if(shown.begin(), shown.end(), control, '?');
  return SPILLWAY_ERROR(Code::kInvalidArgument, "tag \"" + shown + "\": " + std::string(kRules));
}

}  // namespace spillway
