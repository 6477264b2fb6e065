// SPDX-License-Identifier: Apache-2.0
#include "torch_glue/job.h"

#include "allocator/base/env.h"
#include "allocator/base/log.h"
#include "allocator/base/setting_values.h"
#include "allocator/base/settings.h"
#include "allocator/plan/ratio_chooser.h"
#include "allocator/tag/tag.h"
#include "torch_glue/cuda_allocator/cuda_allocator.h"
#include "torch_glue/saved_tensors/region_stack.h"

#include <fnmatch.h>

#include <algorithm>
#include <atomic>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

namespace spillway {
namespace {

struct Named {
  std::string pattern;
  std::string tag;
  RegionOptions region;
};

using NamedRegions = std::vector<Named>;

/// Never destroyed: threads may push ranges while the process ends.
std::atomic<const NamedRegions*> named{nullptr};

/// A tag must have neither wildcards nor empty components.
std::string tag_of(std::string_view pattern) {
  std::string tag;
  for (const char each : pattern) {
    const bool wild = each == '*' || each == '?';
    if (!wild) tag += each;
    if (wild && (tag.empty() || tag.back() != '-')) tag += '-';
  }
  const auto begin = tag.find_first_not_of('/');
  return begin == tag.npos ? "-" : tag.substr(begin, tag.find_last_not_of('/') + 1 - begin);
}

/// Such as "layers.?" and "layers.*", which have ratios of their own.
bool has_tag(const NamedRegions& regions, const std::string& tag) {
  const auto same = [&](const Named& each) {
    return each.tag == tag;
  };
  return std::any_of(regions.begin(), regions.end(), same);
}

Result<Named> parse(std::string_view item) {
  auto [pattern, share] = settings::name_and_value(item);
  SPILLWAY_ASSIGN_OR_RETURN(const Ratio ratio,
                            Ratio::of(settings::read_decimal(share).value_or(0)));
  return Named{std::string(pattern), tag_of(pattern), RegionOptions{TagId{}, ratio}};
}

const Named* fitting(const NamedRegions& regions, const char* name) {
  for (const Named& each : regions) {
    if (fnmatch(each.pattern.c_str(), name, 0) == 0 ||
        fnmatch(("*." + each.pattern).c_str(), name, 0) == 0) {
      return &each;
    }
  }
  return nullptr;
}

/// The regions of this thread's ranges, by domain; 0 for a range without one.
std::vector<std::uint64_t>& open_in(const void* domain) {
  thread_local std::unordered_map<const void*, std::vector<std::uint64_t>> open;
  return open[domain];
}

}  // namespace

Status set_named_regions(std::string_view ratios) {
  auto regions = std::make_unique<NamedRegions>();
  for (const std::string_view item : settings::items(ratios)) {
    SPILLWAY_ASSIGN_OR_RETURN(auto one, parse(item));
    while (has_tag(*regions, one.tag))
      one.tag += '-';
    one.region.tag = intern_tag(one.tag);
    regions->push_back(std::move(one));
  }
  named.store(regions.release(), std::memory_order_release);
  return {};
}

void range_pushed(const void* domain, const char* name) {
  const NamedRegions* const regions = named.load(std::memory_order_acquire);
  const Named* const found = regions == nullptr ? nullptr : fitting(*regions, name);
  std::uint64_t id = 0;
  if (found != nullptr) {
    const auto entered = enter_region(found->region);
    if (entered.ok()) {
      id = entered.value();
    } else {
      log("the region of a named range cannot be entered: " + entered.status().message());
    }
  }
  open_in(domain).push_back(id);
}

void range_popped(const void* domain) {
  auto& open = open_in(domain);
  if (open.empty()) return;  // pushed before the listener was set
  const std::uint64_t id = std::exchange(open.back(), 0);
  open.pop_back();
  if (id != 0) static_cast<void>(leave_region(id));
}

namespace {

/// From SPILLWAY_BUDGET, SPILLWAY_TIME_LIMIT and SPILLWAY_OVER_BUDGET.
Result<std::optional<Budget>> asked_budget() {
  SPILLWAY_ASSIGN_OR_RETURN(const auto text, env::text("SPILLWAY_BUDGET"));
  SPILLWAY_ASSIGN_OR_RETURN(const auto limit, env::number("SPILLWAY_TIME_LIMIT"));
  SPILLWAY_ASSIGN_OR_RETURN(const auto over, env::text("SPILLWAY_OVER_BUDGET"));
  if (!text && !limit) return std::optional<Budget>();
  SPILLWAY_ASSIGN_OR_RETURN(Budget budget, Budget::of(text.value_or("auto"), "SPILLWAY_BUDGET"));
  budget.slowdown = limit.value_or(0);
  budget.warns = over == "warn";
  return std::optional<Budget>(budget);
}

}  // namespace

Status start_job() {
  SPILLWAY_RETURN_IF_ERROR(settings::check_environment(settings::Section::kJob));
  SPILLWAY_ASSIGN_OR_RETURN(const auto budget, asked_budget());
  SPILLWAY_ASSIGN_OR_RETURN(const auto share, env::number("SPILLWAY_OFFLOAD_RATIO"));
  SPILLWAY_ASSIGN_OR_RETURN(const auto allocator, env::text("SPILLWAY_ALLOCATOR"));
  SPILLWAY_ASSIGN_OR_RETURN(const auto recompute, env::text("SPILLWAY_RECOMPUTE"));
  SPILLWAY_ASSIGN_OR_RETURN(const Ratio ratio, Ratio::of(budget ? 1.0 : share.value_or(0)));
  if (allocator != "torch") SPILLWAY_RETURN_IF_ERROR(use_allocator());
  if (!budget && !share && recompute != "1") return {};
  RegionOptions options{intern_tag("job"), ratio};
  options.names_memory = false;
  options.budget = budget;
  options.recompute = recompute ? recompute == "1" : budget.has_value();  // as spillway.offload()
  options.prefetch = !budget;  // as regions with a budget
  return set_process_region(options);
}

}  // namespace spillway
