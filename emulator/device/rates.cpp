// SPDX-License-Identifier: Apache-2.0
#include "emulator/device/rates.h"

#include "allocator/base/setting_values.h"

#include <utility>

namespace spillway::emulator {

double Rates::seconds(double flops, Arithmetic arithmetic, KernelKind kind) const {
  const double shares[] = {1, product, attention, attention_backward};
  const double types[] = {half, tf32, single, dbl, fp8, int8};
  return flops /
         (types[static_cast<std::size_t>(arithmetic)] * shares[static_cast<std::size_t>(kind)]);
}

Rates parse_rates(std::string_view text) {
  Rates rates;
  const std::pair<std::string_view, double*> known[] = {
      {"memory", &rates.memory},
      {"half", &rates.half},
      {"tf32", &rates.tf32},
      {"single", &rates.single},
      {"double", &rates.dbl},
      {"fp8", &rates.fp8},
      {"int8", &rates.int8},
      {"peers", &rates.peers},
      {"pageable", &rates.pageable},
      {"product", &rates.product},
      {"attention", &rates.attention},
      {"attention_backward", &rates.attention_backward},
      {"duplex", &rates.duplex},
      {"kernel", &rates.kernel},
      {"launch", &rates.launch},
      {"call", &rates.call},
      {"hop", &rates.hop}};
  for (const std::string_view item : settings::items(text)) {
    const auto [name, value] = settings::name_and_value(item);
    for (const auto& [each, rate] : known)
      if (each == name) *rate = settings::read_number(value).value_or(*rate);
  }
  return rates;
}

}  // namespace spillway::emulator
