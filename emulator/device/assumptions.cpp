// SPDX-License-Identifier: Apache-2.0
#include "emulator/device/assumptions.h"

#include "emulator/device/numbers.h"

#include <limits>

namespace spillway::emulator {
namespace {

/// "finite" alone is short for "finite=1".
std::string with_values(const std::string& text) {
  constexpr std::string_view kFinite = "finite";
  std::string made = text;
  for (std::size_t at = 0; (at = made.find(kFinite, at)) != std::string::npos;) {
    at += kFinite.size();
    if (at == made.size() || made[at] == ',') made.insert(at, "=1");
  }
  return made;
}

}  // namespace

Result<Assumptions> parse_assumptions(const std::string& text) {
  constexpr double kMax = std::numeric_limits<double>::max();
  Assumptions assumed;
  const NamedNumber known[] = {{"nonzero", &assumed.nonzero, 0, 1},
                               {"unique", &assumed.unique, 0, 1},
                               {"value", &assumed.value, -kMax, kMax},
                               {"finite", &assumed.finite, 0, 1}};
  SPILLWAY_RETURN_IF_ERROR(
      read_numbers(with_values(text),
                   known,
                   "NAME=NUMBER with a name among nonzero, unique (shares, 0 to 1), value and "
                   "finite (0 or 1)"));
  return assumed;
}

}  // namespace spillway::emulator
