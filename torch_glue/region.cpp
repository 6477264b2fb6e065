// SPDX-License-Identifier: Apache-2.0
#include "allocator/runtime/runtime.h"
#include "allocator/tag/tag.h"
#include "torch_glue/saved_tensors/pending_sources.h"
#include "torch_glue/saved_tensors/region_stack.h"

#include <c10/util/Exception.h>

#include <spillway/torch/region.h>

namespace spillway {
namespace {

std::uint64_t enter(double offload_ratio, std::string_view tag) {
  const auto ratio = Ratio::of(offload_ratio);
  TORCH_CHECK_VALUE(ratio.ok(), "Spillway: offload_ratio: ", ratio.status().detail());
  const Status named = tag.empty() ? Status() : check_tag_name(tag);
  TORCH_CHECK_VALUE(named.ok(), "Spillway: ", named.detail());
  const auto id = enter_region({intern_tag(tag), ratio.value()});
  TORCH_CHECK_VALUE(id.ok(), "Spillway: ", id.status().detail());
  return id.value();
}

}  // namespace

OffloadRegion::OffloadRegion(double offload_ratio, std::string_view tag)
    : id_(enter(offload_ratio, tag)) {}

OffloadRegion::~OffloadRegion() {
  SPILLWAY_CHECK(leave_region(id_).ok());
}

void end_step() {
  PendingSources::instance().poll();
  Runtime::instance().end_step();
}

}  // namespace spillway
