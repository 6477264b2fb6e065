// SPDX-License-Identifier: Apache-2.0
#include "torch_glue/saved_tensors/region_stack.h"

#include "allocator/runtime/runtime.h"
#include "torch_glue/saved_tensors/engine.h"
#include "torch_glue/tags/tag_timeline.h"

#include <ATen/SavedTensorHooks.h>

#include <algorithm>
#include <vector>

namespace spillway {
namespace {

/// A thread's regions, the last one always open. A thread that ends closes what it left open.
struct RegionStack {
  std::vector<OffloadedRegion> regions;

  ~RegionStack() {
    for (const OffloadedRegion& region : regions) {
      if (region.open) Runtime::instance().leave_region(region.tag);
    }
    while (!regions.empty())
      regions.pop_back();
  }
};

RegionStack& this_thread() {
  thread_local RegionStack stack;
  return stack;
}

}  // namespace

Result<std::uint64_t> enter_region(TagId tag, Ratio ratio) {
  static std::atomic<std::uint64_t> next{1};
  install_engine();
  SPILLWAY_RETURN_IF_ERROR(Runtime::instance().enter_region(tag, ratio));
  OffloadedRegion region{next.fetch_add(1),
                         tag,
                         at::SavedTensorDefaultHooks::get_tls_state().stack.size(),
                         tag == TagId::kUntagged ? nullptr : std::make_unique<TagScope>(tag),
                         true,
                         {}};
  const std::uint64_t id = region.id;
  this_thread().regions.push_back(std::move(region));
  note_tag();
  return id;
}

Status leave_region(std::uint64_t id) {
  auto& regions = this_thread().regions;
  const auto region = std::find_if(regions.begin(), regions.end(), [&](const OffloadedRegion& one) {
    return one.id == id && one.open;
  });
  if (region == regions.end()) {
    return SPILLWAY_ERROR(Code::kInvalidArgument,
                          "this thread has no such open region: leave a region once, on the thread "
                          "that entered it");
  }
  region->open = false;
  Runtime::instance().leave_region(region->tag);
  while (!regions.empty() && !regions.back().open)
    regions.pop_back();
  note_tag();
  return {};
}

OffloadedRegion* innermost_region() {
  auto& regions = this_thread().regions;
  return regions.empty() ? nullptr : &regions.back();
}

}  // namespace spillway
