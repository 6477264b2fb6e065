// SPDX-License-Identifier: Apache-2.0
#include "allocator/plan/budget.h"

#include "allocator/base/number.h"
#include "allocator/base/setting_values.h"

#include <cmath>

namespace spillway {

Result<Budget> Budget::of(std::string_view text, std::string_view name) {
  const auto amount = settings::read_amount(text);
  if (!amount) {
    return SPILLWAY_ERROR(Code::kInvalidArgument,
                          std::string(name) + "=" + std::string(text) +
                              ": expected a size such as 20GiB, a share above 0% and at most 100%, "
                              "such as 80%, or auto");
  }
  Budget budget;
  budget.bytes = amount->bytes;
  budget.share = amount->automatic ? kAuto : amount->share;
  budget.rest = amount->automatic;
  return budget;
}

Status Budget::limit_time(double times, std::string_view name) {
  if (!(times >= 1 && times <= 100)) {
    return SPILLWAY_ERROR(Code::kInvalidArgument,
                          std::string(name) + "=" + to_text(times) +
                              ": expected a number from 1 to 100, such as 1.05");
  }
  slowdown = times;
  return {};
}

Bytes Budget::on(Bytes total, Bytes available) const {
  if (share <= 0) return bytes;
  const auto of = static_cast<double>((rest ? available : total).count());
  return Bytes{static_cast<std::uint64_t>(std::floor(of * share))};
}

std::string Budget::text() const {
  std::string text = "budget ";
  if (rest) {
    text += "auto";
  } else if (share > 0) {
    text += to_text(share * 100) + " % of the GPU";
  } else {
    text += readable(bytes) + " (" + std::to_string(bytes.count()) + " bytes)";
  }
  if (warns) text += " with over_budget=warn";
  if (slowdown > 0) text += " with time_limit=" + to_text(slowdown);
  return text;
}

}  // namespace spillway
