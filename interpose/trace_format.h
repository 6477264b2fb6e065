// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "interpose/ring.h"

#include <array>
#include <cstdint>
#include <string>

/// docs/preload_trace.md as structs. Numbers are in the machine's byte order, little-endian.
namespace spillway::interpose {

/// One time on both clocks.
struct Moment {
  std::uint64_t ticks = 0;
  std::uint64_t nanoseconds = 0;
};

struct FileHead {
  std::array<char, 8> magic = {'S', 'P', 'I', 'L', 'L', 'P', 'R', 'E'};
  std::uint32_t version = 2;
  std::uint32_t names_bytes = 0;
  Moment begun;
  std::int32_t process = 0;
  std::uint32_t event_bytes = sizeof(Event);
};

static_assert(sizeof(FileHead) == 40);

struct Section {
  std::uint32_t kind;
  std::uint32_t bytes;  ///< after this struct
};

struct EventsHead {
  Section section{.kind = 1, .bytes = 24};
  std::int32_t thread = 0;
  std::uint32_t unused = 0;
  Moment now;
};

static_assert(sizeof(EventsHead) == 32);

struct EndHead {
  Section section{.kind = 2, .bytes = 24};
  Moment now;
  std::uint64_t lost = 0;
};

static_assert(sizeof(EndHead) == 32);

/// The names of functions and kinds by number: two lists, one name per line, an empty line after
/// each list.
inline std::string names_text() {
  std::string text;
  for (const Function& each : kFunctions)
    text += std::string(each.symbol) + "\n";
  text += "\n";
  for (const std::string_view each : kKindNames)
    text += std::string(each) + "\n";
  return text + "\n";
}

}  // namespace spillway::interpose
