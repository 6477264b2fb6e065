// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "allocator/base/bytes.h"
#include "allocator/base/utf8.h"

#include <charconv>
#include <cstdint>
#include <string>
#include <string_view>

namespace spillway {

/// Appends one JSON array to a text, as a separate line: JsonLine(text, "free").add(time).
/// Threads: confined.
/// Ownership: borrows the text.
class JsonLine {
 public:
  JsonLine(std::string& text, std::string_view kind) : text_(text) {
    text_ += '[';
    quote(kind);
  }

  ~JsonLine() { text_ += "]\n"; }

  JsonLine(const JsonLine&) = delete;
  JsonLine& operator=(const JsonLine&) = delete;

  JsonLine& add(std::uint64_t value) {
    text_ += ',';
    number(value);
    return *this;
  }

  JsonLine& add(Bytes value) { return add(value.count()); }

  JsonLine& add(std::string_view value) {
    text_ += ',';
    quote(value);
    return *this;
  }

  /// Begins an object; members follow, then end().
  JsonLine& begin() {
    text_ += ",{";
    first_ = true;
    return *this;
  }

  JsonLine& end() {
    text_ += '}';
    first_ = false;
    return *this;
  }

  JsonLine& member(std::string_view name, std::uint64_t value) {
    name_member(name);
    number(value);
    return *this;
  }

  JsonLine& member(std::string_view name, Bytes value) { return member(name, value.count()); }

  /// Begins an object as a named member; its members follow, then end().
  JsonLine& begin(std::string_view name) {
    name_member(name);
    text_ += '{';
    first_ = true;
    return *this;
  }

 private:
  void name_member(std::string_view name) {
    if (!first_) text_ += ',';
    first_ = false;
    quote(name);
    text_ += ':';
  }

  void number(std::uint64_t value) {
    char digits[20];
    char* const end = std::to_chars(digits, digits + sizeof digits, value).ptr;
    text_.append(digits, end);
  }

  void quote(std::string_view given) {
    const std::string value = valid_utf8(given);
    constexpr char kHex[] = "0123456789abcdef";
    text_ += '"';
    for (const char each : value) {
      const auto code = static_cast<unsigned char>(each);
      if (each == '"' || each == '\\') {
        text_ += '\\';
        text_ += each;
      } else if (code < 0x20) {
        text_ += "\\u00";
        text_ += kHex[code >> 4U];
        text_ += kHex[code & 0xFU];
      } else {
        text_ += each;
      }
    }
    text_ += '"';
  }

  std::string& text_;
  bool first_ = false;
};

}  // namespace spillway
