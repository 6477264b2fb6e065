// SPDX-License-Identifier: Apache-2.0
#include "allocator/runtime/runtime.h"

#include "allocator/base/number.h"
#include "allocator/runtime/fork.h"
#include "allocator/tag/tag.h"

#include <string>
#include <utility>

namespace spillway {

Runtime& Runtime::instance() {
  // Never destroyed: other destructors of the process may still free memory through it.
  static Runtime* const runtime = [] {
    Result<RuntimeOptions> options = RuntimeOptions::from_environment();
    return options.ok() ? new Runtime(options.value(), Status())
                        : new Runtime(RuntimeOptions(), options.status());
  }();
  return *runtime;
}

Runtime::Runtime(RuntimeOptions options) : Runtime(std::move(options), Status()) {}

Runtime::Runtime(RuntimeOptions options, Status settings)
    : options_(std::move(options)),
      settings_(std::move(settings)),
      memory_limit_(options_.memory_limit) {
  watch_for_forks();
  if (driver::tags_are_reported()) watch_tags(driver::announce_tag);
}

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

Result<DeviceRuntime*> Runtime::device(DeviceId id) {
  if (DeviceRuntime* made = device_if_made(id)) return made;
  if (in_forked_child()) {
    return SPILLWAY_ERROR(
        Code::kNotReady,
        "this process was forked from one that uses Spillway. Start it with spawn instead.");
  }
  SPILLWAY_RETURN_IF_ERROR(settings_);
  const Lock making(making_);
  if (DeviceRuntime* made = device_if_made(id)) return made;
  SPILLWAY_ASSIGN_OR_RETURN(const driver::Api* const api, driver::api());
  int devices = 0;
  SPILLWAY_RETURN_IF_ERROR(SPILLWAY_CALL(*api, DeviceGetCount, &devices));
  if (static_cast<int>(id) < 0 || static_cast<int>(id) >= devices) {
    return SPILLWAY_ERROR(Code::kInvalidArgument,
                          "device " + std::to_string(static_cast<int>(id)) +
                              ": expected one of the " + std::to_string(devices) +
                              " devices, which count from 0");
  }
  SPILLWAY_ASSIGN_OR_RETURN(const driver::Device device, driver::Device::open(*api, id));
  RuntimeOptions options = options_;
  {
    const LightLock lock(mutex_);
    options.memory_limit = memory_limit_;
  }
  SPILLWAY_ASSIGN_OR_RETURN(auto made, DeviceRuntime::create(device, options, evictable_));
  const LightLock lock(mutex_);
  DeviceRuntime* const entered = devices_.emplace(id, std::move(made)).first->second.get();
  const auto number = static_cast<std::size_t>(id);
  if (number < made_.size()) made_.at(number).store(entered, std::memory_order_release);
  return entered;
}

Status Runtime::set_memory_limit(Bytes limit) {
  const Lock making(making_);
  for (DeviceRuntime* const device : made_devices()) {
    SPILLWAY_RETURN_IF_ERROR(device->set_limit(DeviceRuntime::Limit::kAbsolute, limit));
  }
  const LightLock lock(mutex_);
  memory_limit_ = limit;
  return {};
}

DeviceRuntime* Runtime::device_if_made(DeviceId id) {
  if (in_forked_child()) return nullptr;
  const auto number = static_cast<std::size_t>(id);
  if (number < made_.size()) return made_.at(number).load(std::memory_order_acquire);
  const LightLock lock(mutex_);
  const auto found = devices_.find(id);
  return found == devices_.end() ? nullptr : found->second.get();
}

DeviceRuntime* Runtime::owner(driver::DevicePtr at) {
  if (in_forked_child()) return nullptr;
  for (DeviceRuntime* const device : made_devices()) {
    if (device->heap().find(at).allocated) return device;
  }
  return nullptr;
}

std::vector<DeviceRuntime*> Runtime::made_devices() const {
  const LightLock lock(mutex_);
  std::vector<DeviceRuntime*> all;
  for (const auto& [id, device] : devices_)
    all.push_back(device.get());
  return all;
}

Status Runtime::enter_region(TagId tag, Ratio ratio, const std::optional<Budget>& budget) {
  if (in_forked_child()) return {};
  SPILLWAY_RETURN_IF_ERROR(settings_);
  const LightLock lock(mutex_);
  if (const TagId* const other = budget ? other_budget_locked(tag) : nullptr) {
    return SPILLWAY_ERROR(
        Code::kInvalidArgument,
        "tag \"" + tag_name(*other) + "\" has a budget in this step, and tag \"" + tag_name(tag) +
            "\" asks for one too. Give both the same tag and the "
            "same budget, which is what the GPU holds for all of them, or end the "
            "step first (spillway.step()).");
  }
  const auto found = tags_.try_emplace(tag, ratio, budget).first;
  const Ratio before = found->second.chooser.ratio();
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

const TagId* Runtime::other_budget_locked(TagId tag) const {
  for (const TagId& id : budgeted_) {
    const Tag& other = tags_.at(id);
    if (id != tag && (other.used || other.open > 0)) return &id;
  }
  return nullptr;
}

bool Runtime::is_new(TagId tag) const {
  if (in_forked_child()) return false;
  const LightLock lock(mutex_);
  const auto found = tags_.find(tag);
  return found != tags_.end() && !found->second.whole;
}

void Runtime::leave_region(TagId tag) {
  if (in_forked_child()) return;
  std::optional<std::uint64_t> shape;
  {
    const LightLock lock(mutex_);
    Tag* const found = find_tag_locked(tag);
    SPILLWAY_CHECK(found != nullptr && found->open > 0);
    --found->open;
    --open_regions_;
    // The graphs created inside the region have already been destroyed.
    if (open_regions_ == 0 && live_handles_ == 0 && handles_made_) shape = close_step_locked();
  }
  if (shape) fit_host_memory(*shape);
}

Runtime::Tag* Runtime::find_tag_locked(TagId tag) {
  const auto found = tags_.find(tag);
  return found == tags_.end() ? nullptr : &found->second;
}

Runtime::Tag* Runtime::running_tag_locked(const Site& site) {
  return site.step == step_ ? find_tag_locked(site.tag) : nullptr;
}

Decision Runtime::decide(TagId tag,
                         DeviceId device,
                         Bytes size,
                         std::optional<std::uint64_t> node) {
  return decide(tag, device, {size, node, false});
}

Decision Runtime::decide_recomputable(TagId tag, DeviceId device, Bytes size) {
  return decide(tag, device, {size, std::nullopt, true});
}

Decision Runtime::decide(TagId tag, DeviceId device, const Storage& storage) {
  if (in_forked_child()) return {};
  Decision decision;
  const LightLock lock(mutex_);
  Tag* const found = find_tag_locked(tag);
  SPILLWAY_CHECK(found != nullptr);
  shape_ += hash_of(tag, storage.size);
  use_locked(tag, *found);
  decision.site = {tag, device, step_};
  decision.offload = choose_locked(*found, decision, storage);
  return decision;
}

BudgetChooser& Runtime::budget_on_locked(Tag& tag, DeviceRuntime& device) {
  const DeviceId id = device.device().id;
  const auto found = tag.budgets.find(id);
  if (found != tag.budgets.end()) return found->second;
  return tag.budgets.try_emplace(id, device.most(*tag.budget), tag.budget->slowdown).first->second;
}

bool Runtime::choose_by_budget_locked(Tag& tag, Decision& decision, const Storage& storage) {
  Site& site = decision.site;
  const auto device = devices_.find(site.device);
  SPILLWAY_CHECK(device != devices_.end());
  BudgetChooser& chooser = budget_on_locked(tag, *device->second);
  site.index = chooser.seen();
  site.watched = true;
  // Before its first plan, so that steps recorded by another run are planned alike.
  if (site.index == 0) {
    const Heap& heap = device->second->heap();
    if (heap.peak_reserved_following_plan()) chooser.frees_at_once();
    const auto stranded = heap.stranded_at_target();
    const Bytes allocated = device->second->curve().allocated_at_begin();
    chooser.foresee(stranded ? PredictedReserved({*stranded, allocated, heap.granularity()})
                             : PredictedReserved());
  }
  const Action action = chooser.choose(
      storage.size, device->second->curve().allocated_at_begin(), storage.recomputable);
  decision.recompute = action == Action::kRecompute;
  // It is offloaded after all if the budget turns out to have no room for it.
  decision.waits = action == Action::kKeep && !device->second->heap().budget().zero();
  if (!decision.recompute) tag.step.offloadable += storage.size;
  decision.known = chooser.planned();
  decision.recording = chooser.recording();
  return action == Action::kOffload;
}

bool Runtime::choose_locked(Tag& tag, Decision& decision, const Storage& storage) {
  if (tag.budget) return choose_by_budget_locked(tag, decision, storage);
  Site& site = decision.site;
  const RatioChooser::Choice choice = tag.chooser.choose(storage.size, storage.node);
  site.index = tag.chooser.seen() - 1;
  site.referenced_elsewhere = choice == RatioChooser::Choice::kReferencedElsewhere;
  decision.waits = choice == RatioChooser::Choice::kWait;
  decision.known = tag.chooser.planned();
  // They are offloaded after all if the device has no room.
  const bool stays = keeps_ && where_it_helps_ == site.tag;
  for (const std::size_t index : tag.chooser.take_due()) {
    if (stays) {
      tag.step.skip(SkipReason::kCannotHelp, tag.chooser.size(index));
    } else {
      decision.due.push_back({site.tag, site.device, site.step, index});
    }
  }
  last_saved_ = site;
  undisturbed_.store(true, std::memory_order_relaxed);
  if (site.referenced_elsewhere) {
    tag.step.skip(SkipReason::kReferencedElsewhere, storage.size);
  } else {
    tag.step.offloadable += storage.size;
  }
  if (stays && choice == RatioChooser::Choice::kOffload) {
    tag.step.skip(SkipReason::kCannotHelp, storage.size);
    decision.waits = true;
    return false;
  }
  return choice == RatioChooser::Choice::kOffload;
}

}  // namespace spillway
