// SPDX-License-Identifier: Apache-2.0
#include "allocator/plan/budget.h"

#include "allocator/base/env.h"
#include "allocator/base/number.h"

#include <cmath>

namespace spillway {

Result<Budget> Budget::of(std::string_view text, std::string_view name) {
  Budget budget;
  if (text == "auto") {
    budget.share = kAuto;
    budget.rest = true;
    return budget;
  }
  if (text.empty() || text.back() != '%') {
    SPILLWAY_ASSIGN_OR_RETURN(budget.bytes, env::parse_size(text, name));
    return budget;
  }
  std::string_view rest = text;
  const auto percent = env::read_decimal(rest);
  if (!percent || text.front() == '.' || rest != "%" || !(*percent > 0 && *percent <= 100)) {
    return SPILLWAY_ERROR(Code::kInvalidArgument,
                          std::string(name) + "=" + std::string(text) +
                              ": expected a share above 0% and at most 100%, such as 80%");
  }
  budget.share = *percent / 100;
  return budget;
}

Status Budget::limit_time(double times, std::string_view name) {
  if (!(times >= 1 && times <= 100)) {
    return SPILLWAY_ERROR(Code::kInvalidArgument,
                          std::string(name) + ": expected a number from 1 to 100, such as 1.05");
  }
  slowdown = times;
  return {};
}

Status Budget::set_over_budget(std::string_view text, std::string_view name) {
  if (text != "error" && text != "warn") {
    return SPILLWAY_ERROR(Code::kInvalidArgument,
                          std::string(name) + "=" + std::string(text) + ": expected error or warn");
  }
  warns = text == "warn";
  return {};
}

Bytes Budget::on(Bytes total, Bytes available) const {
  if (share <= 0) return bytes;
  const auto of = static_cast<double>((rest ? available : total).count());
  return Bytes{static_cast<std::uint64_t>(std::floor(of * share))};
}

std::string Budget::text() const {
  std::string text = "a budget of ";
  if (rest) {
    text += "what the GPU has left";
  } else if (share > 0) {
    text += to_text(share * 100) + " % of the GPU";
  } else {
    text += std::to_string(bytes.count()) + " bytes (" + readable(bytes) + ")";
  }
  if (warns) text += " (over_budget=warn)";
  if (slowdown > 0) text += " in " + to_text(slowdown) + " times the time";
  return text;
}

}  // namespace spillway
