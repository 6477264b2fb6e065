// SPDX-License-Identifier: Apache-2.0
#include "emulator/device/assumptions.h"

#include "allocator/base/setting_values.h"

#include <utility>

namespace spillway::emulator {

Assumptions parse_assumptions(std::string_view text) {
  Assumptions assumed;
  const std::pair<std::string_view, double*> known[] = {{"nonzero", &assumed.nonzero},
                                                        {"unique", &assumed.unique},
                                                        {"value", &assumed.value},
                                                        {"finite", &assumed.finite}};
  for (const std::string_view item : settings::items(text)) {
    const auto [name, value] = settings::name_and_value(item);
    for (const auto& [each, number] : known)
      if (each == name) *number = settings::read_number(value).value_or(1);  // "finite" alone
  }
  return assumed;
}

}  // namespace spillway::emulator
