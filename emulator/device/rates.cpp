// SPDX-License-Identifier: Apache-2.0
#include "emulator/device/rates.h"

#include "emulator/device/numbers.h"

#include <limits>

namespace spillway::emulator {

double Rates::seconds(double flops, Arithmetic arithmetic, KernelKind kind) const {
  const double shares[] = {1, product, attention, attention_backward};
  const double types[] = {half, tf32, single, dbl, fp8, int8};
  return flops /
         (types[static_cast<std::size_t>(arithmetic)] * shares[static_cast<std::size_t>(kind)]);
}

Result<Rates> parse_rates(const std::string& text) {
  constexpr double kLeast = std::numeric_limits<double>::min();  // above 0
  constexpr double kMax = 1e18;
  Rates rates;
  const NamedNumber known[] = {{"memory", &rates.memory, kLeast, kMax},
                               {"half", &rates.half, kLeast, kMax},
                               {"tf32", &rates.tf32, kLeast, kMax},
                               {"single", &rates.single, kLeast, kMax},
                               {"double", &rates.dbl, kLeast, kMax},
                               {"fp8", &rates.fp8, kLeast, kMax},
                               {"int8", &rates.int8, kLeast, kMax},
                               {"peers", &rates.peers, kLeast, kMax},
                               {"pageable", &rates.pageable, kLeast, kMax},
                               {"product", &rates.product, kLeast, 1},
                               {"attention", &rates.attention, kLeast, 1},
                               {"attention_backward", &rates.attention_backward, kLeast, 1},
                               {"duplex", &rates.duplex, kLeast, 1},
                               {"kernel", &rates.kernel, kLeast, 1},
                               {"launch", &rates.launch, kLeast, 1},
                               {"call", &rates.call, kLeast, 1},
                               {"hop", &rates.hop, 0, 1}};
  SPILLWAY_RETURN_IF_ERROR(read_numbers(
      text,
      known,
      "NAME=NUMBER with a name among memory, half, tf32, single, double, fp8, int8, peers, "
      "pageable (a second, up to 1e18), product, attention, attention_backward, duplex (shares, up "
      "to 1) and "
      "kernel, launch, call, hop (seconds, up to 1)"));
  return rates;
}

}  // namespace spillway::emulator
