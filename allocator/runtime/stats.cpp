// SPDX-License-Identifier: Apache-2.0
#include "allocator/runtime/stats.h"

#include "allocator/base/check.h"
#include "allocator/runtime/fork.h"
#include "allocator/runtime/runtime.h"

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

RuntimeStats Runtime::stats(std::size_t most_tags) const {
  RuntimeStats stats{};
  if (in_forked_child()) return stats;
  {
    const LightLock lock(mutex_);
    stats.steps = step_;
    stats.live_handles = live_handles_;
    stats.cannot_help = cannot_help_;
    for (const auto& [id, tag] : tags_) {
      if (stats.tags.size() == most_tags) break;
      std::uint64_t mismatches = tag.chooser.mismatches();
      for (const auto& [device, budget] : tag.budgets)
        mismatches += budget.mismatches();
      stats.tags.push_back({id, tag.chooser.ratio().value(), tag.step, tag.last, mismatches});
      stats.tags.back().running.step = step_;
    }
  }
  stats.driver = driver::counters();
  for (DeviceRuntime* device : made_devices()) {
    stats.devices.push_back({device->device().id,
                             device->heap().stats(),
                             device->arena().stats(),
                             device->residency().stats(),
                             device->pauses().stats()});
  }
  return stats;
}

}  // namespace spillway
