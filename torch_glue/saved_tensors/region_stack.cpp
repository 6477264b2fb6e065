// SPDX-License-Identifier: Apache-2.0
#include "torch_glue/saved_tensors/region_stack.h"

#include "allocator/runtime/runtime.h"
#include "torch_glue/saved_storage/running_statistics.h"
#include "torch_glue/saved_tensors/engine.h"
#include "torch_glue/saved_tensors/operator_notes.h"
#include "torch_glue/saved_tensors/relu_mask.h"
#include "torch_glue/tags/backward_tags.h"

#include <ATen/SavedTensorHooks.h>

#include <algorithm>
#include <atomic>
#include <utility>
#include <vector>

namespace spillway {
namespace {

void close(const OffloadedRegion& region) {
  if (region.moves) Runtime::instance().step().leave_region(region.moves->tag);
}

/// A thread's regions; the last one is always open. A thread that ends closes its open regions.
struct RegionStack {
  std::vector<OffloadedRegion> regions;

  ~RegionStack() {
    for (const OffloadedRegion& region : regions) {
      if (region.open) close(region);
    }
    while (!regions.empty())
      regions.pop_back();
  }
};

RegionStack& this_thread() {
  thread_local RegionStack stack;
  return stack;
}

thread_local bool nothing_moves = false;

/// Never destroyed: threads may save tensors while the process ends.
std::atomic<const OffloadedRegion*> process_region{nullptr};

bool recomputes(const OffloadedRegion& region) {
  return region.moves && region.moves->recompute;
}

/// The rules of an outer region also decide on recomputed tensors.
void note_what_is_recomputed() {
  const auto& regions = this_thread().regions;
  const auto* const everywhere = process_region.load(std::memory_order_acquire);
  note_operators((everywhere != nullptr && recomputes(*everywhere)) ||
                 std::any_of(regions.begin(), regions.end(), &recomputes));
}

std::uint64_t open(std::optional<RegionOptions> moves, std::shared_ptr<SavingRules> rules) {
  static std::atomic<std::uint64_t> next{1};
  install_engine();
  const std::uint64_t id = next.fetch_add(1);
  if (moves && Runtime::instance().step().is_new(moves->tag)) see_running_statistics(true);
  const bool renames = moves && moves->names_memory && moves->tag != TagId::kUntagged;
  this_thread().regions.push_back({id,
                                   moves,
                                   std::move(rules),
                                   at::SavedTensorDefaultHooks::get_tls_state().stack.size(),
                                   renames ? std::make_unique<TagScope>(moves->tag) : nullptr,
                                   true});
  if (moves && moves->recompute) note_what_is_recomputed();
  note_tag();
  return id;
}

}  // namespace

Result<std::uint64_t> enter_region(const RegionOptions& options) {
  return enter_region(options, nullptr);
}

Result<std::uint64_t> enter_region(const RegionOptions& options,
                                   std::shared_ptr<SavingRules> rules) {
  if (nothing_moves) return enter_keeping_region();
  SPILLWAY_RETURN_IF_ERROR(
      Runtime::instance().step().enter_region(options.tag, options.ratio, options.budget));
  RegionOptions moves = options;
  const auto* const outer = innermost_region();
  if (outer != nullptr && recomputes(*outer)) moves.recompute = true;
  return open(moves, std::move(rules));
}

Result<std::uint64_t> enter_recomputing_region() {
  const auto* const outer = innermost_region();
  // The second run of a checkpoint collects the tensors that its first run recorded, here too.
  if (nothing_moves) return open(std::nullopt, outer != nullptr ? outer->rules : nullptr);
  RegionOptions options{intern_tag("recompute"), Ratio::of(0).value()};
  if (outer != nullptr && outer->moves) options = *outer->moves;
  options.recompute = true;
  options.names_memory = false;
  return enter_region(options, outer != nullptr ? outer->rules : nullptr);
}

Status set_process_region(const RegionOptions& options) {
  Runtime& runtime = Runtime::instance();
  SPILLWAY_RETURN_IF_ERROR(runtime.step().enter_region(options.tag, options.ratio, options.budget));
  if (!options.budget)
    runtime.step().offload_if_it_helps(options.tag);  // a budget's plan keeps as much as possible
  runtime.step().leave_region(
      options.tag);  // known from now on, but not open: steps end without it
  const auto* const region =
      new OffloadedRegion{0, options, nullptr, /*python_hooks=*/0, nullptr, true};
  const OffloadedRegion* none = nullptr;
  if (!process_region.compare_exchange_strong(none, region)) {
    delete region;
    return SPILLWAY_ERROR(Code::kInvalidArgument,
                          "this process has a whole-process region already: only one is supported");
  }
  install_engine();
  if (options.recompute) note_what_is_recomputed();
  return {};
}

std::uint64_t enter_keeping_region() {
  return open(std::nullopt, nullptr);
}

std::uint64_t enter_region(std::shared_ptr<SavingRules> rules) {
  return open(std::nullopt, std::move(rules));
}

OffloadDisabledGuard::OffloadDisabledGuard() : before_(std::exchange(nothing_moves, true)) {}

OffloadDisabledGuard::~OffloadDisabledGuard() {
  nothing_moves = before_;
}

Status leave_region(std::uint64_t id) {
  auto& regions = this_thread().regions;
  const auto region = std::find_if(regions.begin(), regions.end(), [&](const OffloadedRegion& one) {
    return one.id == id && one.open;
  });
  if (region == regions.end()) {
    return SPILLWAY_ERROR(Code::kInvalidArgument,
                          "this thread has no such open region. Leave a region once, on the thread "
                          "that entered it.");
  }
  const bool recomputed = recomputes(*region);
  if (recomputed) settle_relu_masks(true);
  region->open = false;
  close(*region);
  while (!regions.empty() && !regions.back().open)
    regions.pop_back();
  if (regions.empty()) see_running_statistics(false);
  if (recomputed) note_what_is_recomputed();
  note_tag();
  return {};
}

std::size_t open_regions() {
  const auto& regions = this_thread().regions;
  return static_cast<std::size_t>(
      std::count_if(regions.begin(), regions.end(), [](const auto& one) { return one.open; }));
}

const OffloadedRegion* innermost_region() {
  const auto& regions = this_thread().regions;
  return regions.empty() ? process_region.load(std::memory_order_acquire) : &regions.back();
}

}  // namespace spillway
