// SPDX-License-Identifier: Apache-2.0
#include "torch_glue/model_state/device_storages.h"

#include "torch_glue/model_state/list_slices.h"

#include <algorithm>
#include <mutex>
#include <utility>

namespace spillway {
namespace {

/// Parts of the budget: what is prefetched and not used yet, with room and without.
constexpr std::uint64_t kRoomAhead = 4;
constexpr std::uint64_t kDisplacedAhead = 8;
/// Part of a step's uses after which it is too early to prefetch a storage: others would have to
/// leave for it, or it would leave again.
constexpr std::uint64_t kNear = 6;
/// A storage leaves for one that is prefetched if its next use is this many times farther away.
constexpr std::uint64_t kMuchFarther = 4;
/// Part of the budget of which less leaves in a step that needs little room.
constexpr std::uint64_t kFewLeave = 8;
/// Model state stays that leaves this part of the budget free.
constexpr std::uint64_t kSpare = 8;
/// Forward passes of a step. Of 1, 4 and 16, the optimizer's step is faster with overlap up to 4.
constexpr std::size_t kMostPassesToOverlap = 8;
/// Offloaded bytes may be in pieces that are too small.
constexpr int kMostRounds = 3;

Bytes share_of(Bytes budget, std::uint64_t parts) {
  return Bytes{budget.count() / parts};
}

}  // namespace

std::shared_ptr<ManagedStorage> DeviceStorages::manage(const c10::Storage& storage,
                                                       ModelClass of,
                                                       AccessOrder::Id id) {
  // Other threads may use it as soon as it is managed, and then need its slot.
  const LightLock lock(mutex_);
  const OffloadQueue::Slot slot = queue_.add(id);
  try {
    // Where not all gradients have room beside the parameters, they leave as they are made.
    auto made = ManagedStorage::manage(storage, of, id, {device_, addresses_, slot, !streams()});
    if (storages_.size() <= slot) {
      storages_.resize(slot + 1);
      ahead_.resize(slot + 1);
      is_early_.resize(slot + 1);
      is_gradient_.resize(slot + 1);
    }
    storages_[slot] = made.get();
    is_gradient_[slot] = of == ModelClass::kGradient;
    if (is_gradient_[slot]) gradients_ += made->size();
    if (of == ModelClass::kGradient && !std::exchange(trains_, true)) {
      early_.clear();
      is_early_.assign(is_early_.size(), false);
    }
    const bool loaded = !trains_ && of != ModelClass::kCast;  // a cast soon ends
    if (loaded || queue_.is_leaving(slot)) add_early(slot);
    return made;
  } catch (...) {
    queue_.remove(slot);
    throw;
  }
}

void DeviceStorages::forget(const ManagedStorage& ended) {
  const LightLock lock(mutex_);
  set_ahead(ended, false);
  if (is_gradient_[ended.slot()]) gradients_ -= ended.size();
  queue_.remove(ended.slot());
  storages_[ended.slot()] = nullptr;
}

void DeviceStorages::used(const ManagedStorage& storage, bool writes) {
  const std::optional<Bytes> besides = besides_model();
  const bool passes = in_pass();
  const Bytes most = besides ? device_.curve().take_recent_peak() : Bytes();
  const Bytes queued = device_.copies().queued_in();
  const LightLock lock(mutex_);
  set_ahead(storage, false);
  queue_.use(storage.slot(), writes);
  if (besides) need_.note(queue_.order().running(), *besides + gradients_, most + gradients_);
  backlog_.use(queued, besides && passes);
  if (passes) use_in_pass(storage);
  const bool loaded = !trains_ && storage.model_class() != ModelClass::kCast;
  if (storage.changed() && (loaded || queue_.is_leaving(storage.slot()))) add_early(storage.slot());
}

void DeviceStorages::use_in_pass(const ManagedStorage& storage) {
  const ModelClass of = storage.model_class();
  if (of != ModelClass::kParameter && of != ModelClass::kGradient) return;
  device_.curve().model_state_used(storage.id(), storage.size(), of == ModelClass::kGradient);
  PassUses& uses = uses_[storage.id()];
  ++uses.now;
  const ModelStateShare& plan = device_.model_state();
  const bool is_last = uses.now == uses.last;
  const bool leaves =
      plan.leaves_after(storage.id(), uses.now) || (is_last && plan.leaves_after(storage.id(), 0));
  used_now_.push_back({storage.slot(), storage.id(), leaves});
}

void DeviceStorages::begin_operator() {
  std::vector<std::shared_ptr<ManagedStorage>> leaving;
  {
    const LightLock lock(mutex_);
    for (const Use& use : used_) {
      device_.curve().model_state_idle(use.id);
      ManagedStorage* const storage = storages_[use.slot];
      const bool same = storage != nullptr && storage->id() == use.id;
      if (use.leaves && same) leaving.push_back(storage->shared_from_this());
    }
    used_.clear();  // both keep their memory: this runs before each operator
    used_.swap(used_now_);
  }
  for (const auto& storage : leaving) {
    const Bytes size = storage->offload();
    const LightLock lock(mutex_);
    if (!size.zero() && exists(*storage)) left(*storage, size);
  }
}

void DeviceStorages::left(const ManagedStorage& storage, Bytes size) {
  set_ahead(storage, false);
  cursor_ = std::min(cursor_, queue_.next_use(storage.slot()));
  queue_.leave(storage.slot());
  left_ += size;
}

bool DeviceStorages::should_overlap() const {
  const LightLock lock(mutex_);
  return !left_.zero() && passes_ <= kMostPassesToOverlap;
}

void DeviceStorages::end_step() {
  const LightLock lock(mutex_);
  const bool few_leave = left_ < share_of(device_.budget().of_job(), kFewLeave);
  queue_.end_step(few_leave);
  need_.end_step();
  left_ = Bytes{};
  besides_states_ = sizes().besides;
  last_passes_ = std::exchange(passes_, 0);
  // In a single pass, activations do not need their memory again.
  device_.heap().placement().set_streaming(streams() && last_passes_ > 1);
  device_.heap().placement().replay_without_streamed(few_leave);
  cursor_ = 0;
  held_until_ = 0;
}

std::optional<Bytes> DeviceStorages::besides_model() const {
  if (device_.model_state().need().zero()) return std::nullopt;
  return saturating_sub(device_.heap().view().allocated(), device_.model_state().bytes());
}

DeviceStorages::Sizes DeviceStorages::sizes() const {
  Sizes sizes{};
  for (const ManagedStorage* const storage : storages_) {
    if (storage == nullptr) continue;
    const bool state = storage->model_class() == ModelClass::kOptimizerState;
    (state ? sizes.states : sizes.besides) += storage->size();
  }
  return sizes;
}

ModelStateTerms DeviceStorages::need() {
  const LightLock lock(mutex_);
  ++passes_;
  for (auto& [id, uses] : uses_) {
    if (uses.now != 0) uses = {0, uses.now};
  }
  used_.clear();
  used_now_.clear();
  backlog_.begin_pass(device_.budget().pace().bytes_in());
  const Sizes now = sizes();
  const Bytes budget = device_.budget().of_job();
  const Bytes all = std::max(now.besides, besides_states_) + now.states;
  if (budget.zero() || all + share_of(budget, kSpare) <= budget) return {};
  if (last_passes_ > 1) return {now.besides, streams()};
  const Bytes later = std::max(now.besides, besides_states_) + slice_bytes(budget);
  return {now.besides + std::min(now.states, saturating_sub(budget, later)), streams()};
}

void DeviceStorages::collect(std::vector<std::shared_ptr<ManagedStorage>>& all) {
  const LightLock lock(mutex_);
  for (ManagedStorage* const storage : storages_)
    if (storage != nullptr) all.push_back(storage->shared_from_this());
}

const ManagedStorage* DeviceStorages::offloaded_at(driver::DevicePtr at) {
  if (!mutex_.try_lock()) return nullptr;
  const std::unique_lock<LightMutex> lock(mutex_, std::adopt_lock);
  for (const ManagedStorage* const storage : storages_)
    if (storage != nullptr && storage->faults_at(at)) return storage;
  return nullptr;
}

std::shared_ptr<ManagedStorage> DeviceStorages::take(std::uint64_t after, BlockUse use) {
  const LightLock lock(mutex_);
  std::optional<OffloadQueue::Slot> slot;
  if (use != BlockUse::kStreamed && device_.heap().placement().streaming()) {
    slot = queue_.take_of([&](OffloadQueue::Slot each)
                              SPILLWAY_REQUIRES(mutex_) { return !storages_[each]->is_apart(); });
  }
  if (!slot) slot = queue_.take(after);
  return slot ? storages_[*slot]->shared_from_this() : nullptr;
}

void DeviceStorages::put_back(const std::vector<std::shared_ptr<ManagedStorage>>& taken) {
  const LightLock lock(mutex_);
  for (const auto& storage : taken) {
    // One that is not resident is in the queue again after its next use.
    if (!exists(*storage) || !storage->on_device()) continue;
    if (storage->pinned()) {
      queue_.put_back(storage->slot());
    } else {
      queue_.refuse(storage->slot());
    }
  }
}

Bytes DeviceStorages::reclaim(Bytes wanted, BlockUse use) {
  {
    const LightLock lock(mutex_);
    pressed_ = true;
  }
  return offload(wanted, 0, use);
}

Bytes DeviceStorages::offload(Bytes wanted, std::uint64_t after, BlockUse use) {
  std::vector<std::shared_ptr<ManagedStorage>> stay;
  bool retried = after != 0;
  Bytes freed;
  while (freed < wanted) {
    auto storage = take(after, use);
    if (storage == nullptr) {
      const LightLock lock(mutex_);
      if (std::exchange(retried, true) || !queue_.retry_refused()) break;
      continue;
    }
    const Bytes size = storage->offload();
    freed += size;
    if (size.zero()) {
      stay.push_back(std::move(storage));
      continue;
    }
    const LightLock lock(mutex_);
    if (!exists(*storage)) continue;
    if (after == 0 && ahead_[storage->slot()]) hold_back(queue_.next_use(storage->slot()));
    left(*storage, size);
  }
  put_back(stay);
  return freed;
}

void DeviceStorages::hold_back(std::uint64_t use) {
  const std::uint64_t now = queue_.order().now();
  held_from_ = now < held_until_ ? std::min(held_from_, use) : use;
  held_until_ = std::max(held_until_, now + (std::max(use, now) - now) / 2);
}

void DeviceStorages::prefetch(c10::cuda::CUDAStream consumer) {
  for (Next next = next_offloaded(); next.storage != nullptr; next = next_offloaded())
    if (!start_prefetch(next, consumer)) return;
}

DeviceStorages::Next DeviceStorages::next_offloaded() {
  const LightLock lock(mutex_);
  const AccessOrder& order = queue_.order();
  if (!order.known() || ahead_bytes_ >= share_of(device_.budget().of_job(), kRoomAhead)) return {};
  cursor_ = std::max(cursor_, order.now());
  std::uint64_t end = std::min(order.end(), order.now() + order.length() / kNear + 1);
  if (order.now() < held_until_) end = std::min(end, held_from_);
  for (; cursor_ < end; ++cursor_) {
    Next found{nullptr, cursor_};
    queue_.each_of(order.at(cursor_), [&](OffloadQueue::Slot slot) {
      if (!storages_[slot]->on_device()) found.storage = storages_[slot]->shared_from_this();
    });
    if (found.storage == nullptr) continue;
    if (can_wait(*found.storage)) return {};
    found.growth = growth_until(cursor_);
    return found;
  }
  return {};
}

bool DeviceStorages::in_pass() const {
  return device_.curve().on() && !device_.curve().in_optimizer_phase();
}

bool DeviceStorages::can_wait(const ManagedStorage& storage) const {
  const bool is_state = storage.model_class() == ModelClass::kOptimizerState;
  return is_state && last_passes_ > 1 && in_pass() &&
         backlog_.is_long(device_.copies().queued_in());
}

Bytes DeviceStorages::growth_until(std::uint64_t use) const {
  const AccessOrder& order = queue_.order();
  const std::size_t place = order.place();
  return place == 0 ? Bytes{} : need_.growth(place - 1, place + (use - order.now()));
}

std::optional<std::uint64_t> DeviceStorages::displaces(const Next& next) {
  const LightLock lock(mutex_);
  if (ahead_bytes_ + next.storage->size() > share_of(device_.budget().of_job(), kDisplacedAhead))
    return std::nullopt;
  const std::uint64_t now = queue_.order().now();
  return now + kMuchFarther * (next.use - now);
}

bool DeviceStorages::start_prefetch(const Next& next, c10::cuda::CUDAStream consumer) {
  const Bytes size = next.storage->size();
  const auto comes = [&] {
    return device_.heap().view().allocated() + next.growth + size <= device_.budget().of_job() &&
           next.storage->prefetch(consumer);
  };
  bool started = comes();
  for (int round = 0; !started && round < kMostRounds; ++round) {
    const auto after = displaces(next);
    if (!after || offload(size, *after, BlockUse::kStreamed).zero()) return false;
    started = comes();
  }
  if (!started) return false;
  const LightLock lock(mutex_);
  if (!exists(*next.storage)) return true;
  queue_.put_back(next.storage->slot());
  // If it was used meanwhile, it counts until its next use.
  set_ahead(*next.storage, true);
  return true;
}

void DeviceStorages::add_early(OffloadQueue::Slot slot) {
  if (is_early_[slot]) return;
  is_early_[slot] = true;
  early_.push_back(slot);
}

void DeviceStorages::copy_early() {
  while (true) {
    std::shared_ptr<ManagedStorage> next;
    {
      const LightLock lock(mutex_);
      if (!pressed_ || early_.empty()) return;
      ManagedStorage* const first = storages_[early_.front()];
      if (first != nullptr && first->pinned()) return;
      is_early_[early_.front()] = false;
      early_.pop_front();
      if (first != nullptr && first->on_device() && first->changed())
        next = first->shared_from_this();
    }
    if (next != nullptr) next->copy_ahead();
  }
}

void DeviceStorages::set_ahead(const ManagedStorage& storage, bool ahead) {
  if (ahead_[storage.slot()] == ahead) return;
  ahead_[storage.slot()] = ahead;
  ahead_bytes_ =
      ahead ? ahead_bytes_ + storage.size() : saturating_sub(ahead_bytes_, storage.size());
}

}  // namespace spillway
