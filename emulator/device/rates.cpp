// SPDX-License-Identifier: Apache-2.0
#include "emulator/device/rates.h"

#include <algorithm>
#include <charconv>
#include <string_view>
#include <utility>

namespace spillway::emulator {
namespace {

struct Named {
  std::string_view name;
  double Rates::*rate;
  double most;
};

constexpr double kMost = 1e18;
constexpr Named kNamed[] = {{"memory", &Rates::memory, kMost},
                            {"half", &Rates::half, kMost},
                            {"tf32", &Rates::tf32, kMost},
                            {"single", &Rates::single, kMost},
                            {"double", &Rates::dbl, kMost},
                            {"product", &Rates::product, 1},
                            {"attention", &Rates::attention, 1},
                            {"attention_backward", &Rates::attention_backward, 1}};

Status set(Rates& rates, std::string_view item) {
  const std::size_t equals = std::min(item.find('='), item.size());
  const std::string_view name = item.substr(0, equals);
  const auto* const known = std::find_if(
      std::begin(kNamed), std::end(kNamed), [&](const Named& each) { return each.name == name; });
  double value = 0;
  const char* const end = item.data() + item.size();
  const char* const begin = std::min(item.data() + equals + 1, end);
  const auto read = std::from_chars(begin, end, value);
  if (known == std::end(kNamed) || read.ec != std::errc() || read.ptr != end || !(value > 0) ||
      value > known->most) {
    return SPILLWAY_ERROR(
        Code::kInvalidArgument,
        std::string(item) +
            ": expected NAME=NUMBER with a name among memory, half, tf32, single, double (a "
            "second, "
            "up to 1e18) and product, attention, attention_backward (shares, up to 1)");
  }
  rates.*known->rate = value;
  return {};
}

}  // namespace

double Rates::seconds(double flops, Arithmetic arithmetic, KernelKind kind) const {
  const double shares[] = {1, product, attention, attention_backward};
  const double types[] = {half, tf32, single, dbl};
  return flops /
         (types[static_cast<std::size_t>(arithmetic)] * shares[static_cast<std::size_t>(kind)]);
}

Result<Rates> parse_rates(const std::string& text) {
  Rates rates;
  std::string_view rest = text;
  while (!rest.empty()) {
    const std::size_t comma = std::min(rest.find(','), rest.size());
    SPILLWAY_RETURN_IF_ERROR(set(rates, rest.substr(0, comma)));
    rest.remove_prefix(std::min(comma + 1, rest.size()));
  }
  return rates;
}

}  // namespace spillway::emulator
