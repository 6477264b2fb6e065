// SPDX-License-Identifier: Apache-2.0
#include "emulator/device/numbers.h"

#include <algorithm>
#include <charconv>

namespace spillway::emulator {
namespace {

bool read(std::string_view item, std::span<const NamedNumber> known) {
  const std::size_t equals = std::min(item.find('='), item.size());
  const auto found = std::find_if(known.begin(), known.end(), [&](const NamedNumber& each) {
    return each.name == item.substr(0, equals);
  });
  double value = 0;
  const char* const end = item.data() + item.size();
  const auto number = std::from_chars(std::min(item.data() + equals + 1, end), end, value);
  if (found == known.end() || number.ec != std::errc() || number.ptr != end) return false;
  if (!(value >= found->least && value <= found->most)) return false;
  *found->value = value;
  return true;
}

}  // namespace

Status read_numbers(const std::string& text,
                    std::span<const NamedNumber> known,
                    const std::string& expected) {
  std::string_view rest = text;
  while (!rest.empty()) {
    const std::size_t comma = std::min(rest.find(','), rest.size());
    const std::string_view item = rest.substr(0, comma);
    if (!read(item, known)) {
      return SPILLWAY_ERROR(Code::kInvalidArgument, std::string(item) + ": expected " + expected);
    }
    rest.remove_prefix(std::min(comma + 1, rest.size()));
  }
  return {};
}

}  // namespace spillway::emulator
