// SPDX-License-Identifier: Apache-2.0
#include "allocator/step/step_stats.h"

#include "allocator/base/check.h"

namespace spillway {

std::string_view skip_reason_name(SkipReason reason) {
  switch (reason) {
    case SkipReason::kParameter:
      return "parameter";
    case SkipReason::kReferencedElsewhere:
      return "referenced_elsewhere";
    case SkipReason::kNotOnDevice:
      return "not_on_device";
    case SkipReason::kNotStrided:
      return "not_strided";
    case SkipReason::kSubclass:
      return "subclass";
    case SkipReason::kTiny:
      return "tiny";
    case SkipReason::kNoHostMemory:
      return "no_host_memory";
    case SkipReason::kCapturing:
      return "capturing";
    case SkipReason::kCannotHelp:
      return "cannot_help";
    case SkipReason::kCount:
      break;
  }
  SPILLWAY_CHECK(false && "not a reason");
  return {};
}

}  // namespace spillway
