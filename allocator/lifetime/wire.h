// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string_view>

/// Encoding of a trace's bytes; docs/trace_format.md describes it.
namespace spillway::wire {

inline constexpr std::string_view kMagic = "SPILLTRC";
inline constexpr std::uint64_t kVersion = 1;

enum Kind : std::uint64_t {
  kEnd = 0,
  kName = 1,
  kAllocate = 2,
  kFree = 3,
  kUse = 4,
  kRetag = 5,
  kStep = 6,
};

}  // namespace spillway::wire
