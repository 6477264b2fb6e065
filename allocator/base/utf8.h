// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace spillway {

/// `text` as valid UTF-8, for display. Each byte that is not part of a character is replaced by an
/// escape such as \xe9, as with Python's "backslashreplace". Python raises UnicodeDecodeError for
/// other text, and JSON allows no other.
/// Threads: safe.
std::string valid_utf8(std::string_view text);

/// The longest prefix of the valid UTF-8 `text` of at most `most` bytes that splits no character.
std::string_view utf8_prefix(std::string_view text, std::size_t most);

}  // namespace spillway
