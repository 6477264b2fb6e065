// SPDX-License-Identifier: Apache-2.0
#include "allocator/base/utf8.h"

#include <cstdint>

namespace spillway {
namespace {

bool continues(char byte) {
  return (static_cast<unsigned char>(byte) & 0xC0U) == 0x80U;
}

/// The byte length of the character at the start of `text`; 0 if there is none.
std::size_t character(std::string_view text) {
  const auto first = static_cast<unsigned char>(text.front());
  if (first < 0x80) return 1;
  const std::size_t size = first >= 0xF0 ? 4 : first >= 0xE0 ? 3 : 2;
  if (first < 0xC2 || first > 0xF4 || text.size() < size) return 0;
  std::uint32_t code = first & (0x7FU >> size);
  for (const char byte : text.substr(1, size - 1)) {
    if (!continues(byte)) return 0;
    code = code << 6U | (static_cast<unsigned char>(byte) & 0x3FU);
  }
  const bool surrogate = code >= 0xD800 && code < 0xE000;
  const bool too_long = (size == 3 && code < 0x800) || (size == 4 && code < 0x10000);
  return surrogate || too_long || code > 0x10FFFF ? 0 : size;
}

}  // namespace

std::string valid_utf8(std::string_view text) {
  constexpr std::string_view kHex = "0123456789abcdef";
  std::string valid;
  valid.reserve(text.size());
  while (!text.empty()) {
    const std::size_t size = character(text);
    if (size == 0) {
      const auto byte = static_cast<unsigned char>(text.front());
      valid += "\\x";
      valid += kHex[byte >> 4U];
      valid += kHex[byte & 0xFU];
      text.remove_prefix(1);
    } else {
      valid += text.substr(0, size);
      text.remove_prefix(size);
    }
  }
  return valid;
}

std::string_view utf8_prefix(std::string_view text, std::size_t most) {
  if (text.size() <= most) return text;
  while (most > 0 && continues(text[most]))
    --most;
  return text.substr(0, most);
}

}  // namespace spillway
