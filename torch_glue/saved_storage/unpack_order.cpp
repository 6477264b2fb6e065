// SPDX-License-Identifier: Apache-2.0
#include "torch_glue/saved_storage/unpack_order.h"

#include "torch_glue/saved_storage/saved_storage.h"

#include <algorithm>
#include <unordered_map>
#include <utility>

namespace spillway {
namespace {

/// The search for a storage to fetch ends after this many consecutive ones without need.
constexpr int kMaxNotBegun = 8;

constexpr auto kUnknown = static_cast<std::size_t>(-1);

}  // namespace

UnpackOrder& UnpackOrder::of(TagId tag) {
  static LightMutex mutex;
  static auto* const orders = new std::unordered_map<TagId, UnpackOrder>;
  const LightLock lock(mutex);
  return (*orders)[tag];
}

void UnpackOrder::begin_step(std::uint64_t step) {
  step_ = step;
  if (!order_.empty()) {
    before_ = std::exchange(order_, {});
    positions_.assign(offloaded_.size(), kUnknown);
    for (std::size_t position = before_.size();
         position-- > 0;)  // of two uses the first one counts
      positions_[before_[position]] = position;
  }
  offloaded_.clear();
  headroom_.reset();
}

void UnpackOrder::offloaded(const Site& site,
                            SavedStorage& storage,
                            Bytes size,
                            std::optional<Bytes> headroom) {
  const LightLock lock(mutex_);
  if (site.step != step_) begin_step(site.step);
  if (offloaded_.size() <= site.index) offloaded_.resize(site.index + 1);
  offloaded_[site.index] = {storage.weak_from_this(), &storage, size};
  headroom_ = headroom;
}

void UnpackOrder::grew(const Site& site, Bytes size) {
  const LightLock lock(mutex_);
  if (site.step == step_) offloaded_[site.index].size = size;
}

void UnpackOrder::used(const Site& site,
                       const SavedStorage* storage,
                       c10::cuda::CUDAStream consumer) {
  std::size_t position = site.index;
  bool recorded = false;
  std::shared_ptr<SavedStorage> next;
  {
    const LightLock lock(mutex_);
    forget(storage);
    if (site.step != step_) return;
    order_.push_back(site.index);
    if (site.index < positions_.size() && positions_[site.index] != kUnknown) {
      position = positions_[site.index];
      recorded = true;
    }
    next = take_next(position, recorded);
  }
  for (int not_begun = 0; next != nullptr;) {
    const bool begun = next->prefetch(consumer);
    not_begun = begun ? 0 : not_begun + 1;
    std::shared_ptr<SavedStorage> done;  // destroyed without the lock
    const LightLock lock(mutex_);
    if (!begun) forget(next.get());
    if (not_begun == kMaxNotBegun) return;
    done = std::exchange(next, take_next(position, recorded));
  }
}

std::shared_ptr<SavedStorage> UnpackOrder::take_next(std::size_t& position, bool recorded) {
  while (recorded ? ++position < before_.size() : position-- > 0) {
    const std::size_t index = recorded ? before_[position] : position;
    if (index >= offloaded_.size()) continue;
    const Offloaded& next = offloaded_[index];
    if (next.identity == nullptr || is_early(next.identity)) continue;
    if (!has_room_for(next)) return nullptr;
    // The last owner must not be destroyed under the lock, so only the returned storages are owned.
    if (auto storage = next.storage.lock()) {
      early_.emplace_back(next.identity, next.size);
      early_bytes_ += next.size;
      return storage;
    }
  }
  return nullptr;
}

bool UnpackOrder::is_early(const SavedStorage* storage) const {
  return std::any_of(
      early_.begin(), early_.end(), [&](const auto& each) { return each.first == storage; });
}

bool UnpackOrder::has_room_for(const Offloaded& offloaded) const {
  if (!headroom_) return early_.empty();
  return early_bytes_ + offloaded.size <= *headroom_;
}

void UnpackOrder::gone(const SavedStorage* storage) {
  const LightLock lock(mutex_);
  forget(storage);
}

void UnpackOrder::forget(const SavedStorage* storage) {
  const auto early = std::find_if(
      early_.begin(), early_.end(), [&](const auto& each) { return each.first == storage; });
  if (early == early_.end()) return;
  early_bytes_ -= early->second;
  early_.erase(early);
}

}  // namespace spillway
