// SPDX-License-Identifier: Apache-2.0
#include "allocator/step/step_session.h"

#include "allocator/base/check.h"
#include "allocator/base/number.h"
#include "allocator/device/fork.h"
#include "allocator/step/ratio_policy.h"
#include "allocator/tag/tag.h"

#include <string>
#include <utility>

// Regions, and what a step saves. Its end is in step_end.cpp.
namespace spillway {
namespace {

/// The sum of these over the storages of a step identifies its shape, independent of the order in
/// which threads save.
std::uint64_t hash_of(TagId tag, Bytes size) {
  // The finalizer of MurmurHash3, which is public domain.
  std::uint64_t hash = size.count() + (std::uint64_t{static_cast<std::uint32_t>(tag)} << 48U) + 1;
  hash = (hash ^ (hash >> 33U)) * 0xff51afd7ed558ccdULL;
  hash = (hash ^ (hash >> 33U)) * 0xc4ceb9fe1a85ec53ULL;
  return hash ^ (hash >> 33U);
}

std::string share(Ratio ratio, const std::optional<Budget>& budget) {
  return budget ? budget->text() : "offload ratio " + to_text(ratio.value());
}

}  // namespace

StepSession::Tag::Tag(Ratio share, const std::optional<Budget>& within)
    : ratio(share), budget(within) {
  if (budget) {
    auto made = std::make_unique<BudgetPolicy>(*budget);
    budgets = made.get();
    policy = std::move(made);
  } else {
    policy = std::make_unique<RatioPolicy>(ratio);
  }
}

Status StepSession::enter_region(TagId tag, Ratio ratio, const std::optional<Budget>& budget) {
  if (in_forked_child()) return {};
  SPILLWAY_RETURN_IF_ERROR(devices_.settings());
  const Lock lock(mutex_);
  if (const TagId* const other = budget ? other_budget_locked(tag) : nullptr) {
    return SPILLWAY_ERROR(
        Code::kInvalidArgument,
        "tag \"" + tag_name(*other) + "\" has a budget in this step, and tag \"" + tag_name(tag) +
            "\" asks for one too. Give both the same tag and the "
            "same budget, which is what the GPU holds for all of them, or end the "
            "step first (spillway.step()).");
  }
  const auto found = tags_.try_emplace(tag, ratio, budget).first;
  const Ratio before = found->second.ratio;
  const std::optional<Budget> budget_before = found->second.budget;
  if (!(before == ratio) || budget_before != budget) {
    if (found->second.used || found->second.open > 0) {
      return SPILLWAY_ERROR(
          Code::kInvalidArgument,
          "tag \"" + tag_name(tag) + "\" has " + share(before, budget_before) +
              " in this step, and " + share(ratio, budget) + " was requested. " +
              (budget && budget_before ? "Give both the same budget, or end the step first "
                                         "(spillway.step())."
                                       : "End the step first, or use another tag."));
    }
    const TagStepStats last = found->second.last;
    tags_.erase(found);
    if (cannot_help_.reason == HelplessReason::kModelState) cannot_help_ = {};  // of that budget
    tags_.try_emplace(tag, ratio, budget).first->second.last = last;
  }
  if (budget) {
    budgeted_.insert(tag);
  } else if (budget_before) {
    budgeted_.erase(tag);
  }
  ++tags_.at(tag).open;
  ++open_regions_;
  return {};
}

const TagId* StepSession::other_budget_locked(TagId tag) const {
  for (const TagId& id : budgeted_) {
    const Tag& other = tags_.at(id);
    if (id != tag && (other.used || other.open > 0)) return &id;
  }
  return nullptr;
}

void StepSession::leave_region(TagId tag) {
  if (in_forked_child()) return;
  {
    const Lock lock(mutex_);
    Tag& left = tag_locked(tag);
    SPILLWAY_CHECK(left.open > 0);
    --left.open;
    --open_regions_;
  }
  // The graphs created inside the region have already been destroyed.
  end(StepEnd::kRegionsLeft);
}

bool StepSession::is_new(TagId tag) const {
  if (in_forked_child()) return false;
  const Lock lock(mutex_);
  const auto found = tags_.find(tag);
  return found != tags_.end() && !found->second.had_backward;
}

StepSession::Tag* StepSession::find_tag_locked(TagId tag) {
  const auto found = tags_.find(tag);
  return found == tags_.end() ? nullptr : &found->second;
}

BudgetPolicy* StepSession::budgets_locked(TagId tag) {
  const Tag* const found = find_tag_locked(tag);
  return found == nullptr ? nullptr : found->budgets;
}

StepSession::Tag* StepSession::running_tag_locked(const Site& site) {
  return site.step == step_ ? find_tag_locked(site.tag) : nullptr;
}

void StepSession::use_locked(TagId id, Tag& tag) {
  if (!std::exchange(tag.used, true)) used_.push_back(id);
}

Decision StepSession::decide(TagId tag,
                             DeviceId device,
                             Bytes size,
                             std::optional<std::uint64_t> node) {
  return decide(tag, device, size, node, false);
}

Decision StepSession::decide_recomputable(TagId tag, DeviceId device, Bytes size) {
  return decide(tag, device, size, std::nullopt, true);
}

Decision StepSession::decide(
    TagId tag, DeviceId device, Bytes size, std::optional<std::uint64_t> node, bool recomputable) {
  if (in_forked_child()) return {};
  DeviceRuntime* const made = devices_.if_made(device);
  SPILLWAY_CHECK(made != nullptr);
  const OfferedStorage storage{
      .device = *made, .size = size, .node = node, .recomputable = recomputable};
  std::vector<PlanRequest> plans;
  {
    const Lock lock(mutex_);
    Tag& found = tag_locked(tag);
    plans = found.policy->plans_for(storage);
    if (plans.empty()) return decide_locked(tag, found, storage);
  }
  for (PlanRequest& plan : plans)
    plan.run();
  const Lock lock(mutex_);
  Tag& found = tag_locked(tag);
  found.policy->adopt(device, std::move(plans));
  return decide_locked(tag, found, storage);
}

StepSession::Tag& StepSession::tag_locked(TagId tag) {
  Tag* const found = find_tag_locked(tag);
  SPILLWAY_CHECK(found != nullptr);
  return *found;
}

Decision StepSession::decide_locked(TagId id, Tag& tag, OfferedStorage storage) {
  shape_ += hash_of(id, storage.size);
  use_locked(id, tag);
  storage.cannot_help = keeps_ && where_it_helps_ == id;
  const PolicyDecision decided = tag.policy->on_saved(storage, tag.step);
  Decision decision{decided.action, {}, {}};
  decision.site = {.tag = id,
                   .device = storage.device.device().id,
                   .step = step_,
                   .index = decided.index,
                   .watched = decided.watched,
                   .referenced_elsewhere = decided.referenced_elsewhere};
  for (const std::size_t index : decided.due) {
    decision.due.push_back(
        {.tag = id, .device = decision.site.device, .step = step_, .index = index});
  }
  if (!tag.budget) {
    last_saved_ = decision.site;
    undisturbed_.store(true, std::memory_order_relaxed);
  }
  return decision;
}

void StepSession::on_event(StorageEvent event, const Site& site, Bytes size) {
  if (in_forked_child()) return;
  const Lock lock(mutex_);
  Tag* const tag = running_tag_locked(site);
  if (tag == nullptr) return;
  tag->policy->on_event(event, site.device, site.index);
  if (event == StorageEvent::kNoHostMemory) tag->step.skip(SkipReason::kNoHostMemory, size);
}

void StepSession::on_first_use(const Site& site) {
  // Most uses are not the first one of a backward pass.
  if (!undisturbed_.load(std::memory_order_relaxed) || in_forked_child()) return;
  const Lock lock(mutex_);
  Tag* const tag = running_tag_locked(site);
  if (tag == nullptr) return;
  const bool of_tag = last_saved_ && site.tag == last_saved_->tag && site.step == last_saved_->step;
  const auto last = of_tag ? std::optional(last_saved_->index) : std::nullopt;
  if (!tag->policy->on_first_use(site.index, last))
    undisturbed_.store(false, std::memory_order_relaxed);
}

std::vector<Site> StepSession::prefetch_after(const Site& site) const {
  if (in_forked_child()) return {};
  const Lock lock(mutex_);
  const auto tag = tags_.find(site.tag);
  if (site.step != step_ || tag == tags_.end()) return {};
  std::vector<Site> due;
  for (const std::size_t index : tag->second.policy->prefetch_after(site.device, site.index)) {
    due.push_back(site);
    due.back().index = index;
  }
  return due;
}

template <typename Count>
void StepSession::count(TagId tag, Count count) {
  if (in_forked_child()) return;
  const Lock lock(mutex_);
  Tag* const found = find_tag_locked(tag);
  if (found == nullptr) return;
  use_locked(tag, *found);
  count(found->step);
}

template <typename Count>
void StepSession::count(const Site& site, Count count) {
  if (in_forked_child()) return;
  const Lock lock(mutex_);
  if (Tag* const tag = running_tag_locked(site)) count(tag->step);
}

void StepSession::skipped(TagId tag, SkipReason reason, Bytes size) {
  count(tag, [&](TagStepStats& step) { step.skip(reason, size); });
}

void StepSession::count_kept(TagId tag, Bytes size) {
  count(tag, [&](TagStepStats& step) { step.offloadable += size; });
}

void StepSession::left_to_recompute(TagId tag, Bytes size) {
  count(tag, [&](TagStepStats& step) { step.left_to_recompute += size; });
}

void StepSession::recomputed(TagId tag, Bytes size) {
  if (in_forked_child()) return;
  const Lock lock(mutex_);
  if (Tag* const found = find_tag_locked(tag)) found->step.recomputed += size;
}

void StepSession::offloaded(const Site& site, Bytes size, Bytes copied) {
  if (in_forked_child()) return;
  const Lock lock(mutex_);
  Tag* const tag = running_tag_locked(site);
  if (tag == nullptr) return;
  if (where_it_helps_ == site.tag) offloads_ = true;
  tag->step.offloaded += size;
  tag->step.copied += copied;
}

void StepSession::copied(const Site& site, Bytes bytes) {
  count(site, [&](TagStepStats& step) { step.copied += bytes; });
}

void StepSession::fetched(const Site& site, Bytes bytes) {
  count(site, [&](TagStepStats& step) { step.fetched += bytes; });
}

std::uint64_t StepSession::number() const {
  return in_forked_child() ? 0 : step_.load();
}

std::uint64_t StepSession::tags_visited() const {
  const Lock lock(mutex_);
  return tags_visited_;
}

SessionStats StepSession::stats(std::size_t most_tags) const {
  SessionStats stats;
  const Lock lock(mutex_);
  stats.steps = step_;
  stats.saved_tensor_handles = handles_;
  stats.cannot_help = cannot_help_;
  for (const auto& [id, tag] : tags_) {
    if (stats.tags.size() == most_tags) break;
    stats.tags.push_back({id, tag.ratio.value(), tag.step, tag.last, tag.policy->mismatches()});
    stats.tags.back().running.step = step_;
  }
  return stats;
}

}  // namespace spillway
