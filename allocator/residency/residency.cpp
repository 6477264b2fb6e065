// SPDX-License-Identifier: Apache-2.0
#include "allocator/residency/residency.h"

#include <utility>

namespace spillway {

Stash::Stash(Residency& residency, HostSlot slot, driver::Fence written, bool in_heap)
    : slot_(std::move(slot)), written_(written), residency_(&residency), in_heap_(in_heap) {
  residency.stashed_ += slot_.size().count();
  residency.on_host_ += slot_.size().count();
  ++residency.stashes_;
  set_offloaded(true);
}

void Stash::is_fetched(driver::Fence read) {
  // The copy in comes after the copy out, so that has passed when this one has.
  if (!std::exchange(fetched_, true)) slot_.fences.clear();
  slot_.fences.add(read);
  residency_->fetched_ += slot_.size().count();
  set_offloaded(false);
}

void Stash::set_offloaded(bool offloaded) {
  if (offloaded_ == offloaded) return;
  offloaded_ = offloaded;
  if (offloaded) {
    residency_->offloaded_ += slot_.size().count();
  } else {
    residency_->offloaded_ -= slot_.size().count();
  }
}

Stash& Stash::operator=(Stash&& other) noexcept {
  if (slot_.data() != nullptr) drop();
  slot_ = std::move(other.slot_);
  written_ = other.written_;
  residency_ = other.residency_;
  fetched_ = other.fetched_;
  offloaded_ = other.offloaded_;
  in_heap_ = other.in_heap_;
  return *this;
}

void Stash::drop() {
  set_offloaded(false);
  residency_->on_host_ -= slot_.size().count();
  if (!fetched_) ++residency_->dropped_;
}

Result<Stash> Residency::stash(driver::DevicePtr source, Bytes size, driver::Stream producer) {
  SPILLWAY_ASSIGN_OR_RETURN(HostSlot slot, arena_.take(size));
  SPILLWAY_ASSIGN_OR_RETURN(const driver::Fence written, copies_.to_host({source, slot}, producer));
  return Stash(*this, std::move(slot), written, heap_.add_fence(source, written));
}

Result<std::vector<Stash>> Residency::stash(std::span<const Leaving> parts,
                                            driver::Stream producer) {
  std::vector<HostSlot> slots;
  std::vector<CopyOut> copies;
  slots.reserve(parts.size());  // the copies refer to them
  for (const Leaving& part : parts) {
    SPILLWAY_ASSIGN_OR_RETURN(HostSlot slot, arena_.take(part.size));
    slots.push_back(std::move(slot));
    copies.emplace_back(part.source, slots.back());
  }
  SPILLWAY_ASSIGN_OR_RETURN(const driver::Fence written, copies_.to_host(copies, producer));
  std::vector<Stash> stashes;
  for (std::size_t each = 0; each < parts.size(); ++each) {
    const bool in_heap = heap_.add_fence(parts[each].source, written);
    stashes.push_back(Stash(*this, std::move(slots[each]), written, in_heap));
  }
  return stashes;
}

Result<driver::Fence> Residency::fetch(Stash& stash,
                                       driver::DevicePtr destination,
                                       driver::Stream consumer,
                                       CopyPriority priority) {
  SPILLWAY_ASSIGN_OR_RETURN(
      const driver::Fence read,
      copies_.to_device({stash.bytes(), stash.written(), destination}, consumer, priority));
  heap_.add_fence(destination, read);
  stash.is_fetched(read);
  ++fetches_;
  return read;
}

Result<driver::Fence> Residency::fetch(std::span<const Return> returns,
                                       driver::Stream consumer,
                                       CopyPriority priority) {
  std::vector<CopyIn> copies;
  for (const Return& back : returns)
    copies.push_back({back.stash->bytes(), back.stash->written(), back.destination});
  SPILLWAY_ASSIGN_OR_RETURN(const driver::Fence read,
                            copies_.to_device(copies, consumer, priority));
  // The block may be freed before the copies have passed.
  heap_.add_fence(returns.front().destination, read);
  for (const Return& back : returns)
    back.stash->is_fetched(read);
  ++fetches_;
  return read;
}

ResidencyStats Residency::stats() const {
  return {Bytes{stashed_.load()},
          Bytes{fetched_.load()},
          Bytes{on_host_.load()},
          Bytes{offloaded_.load()},
          stashes_.load(),
          fetches_.load(),
          dropped_.load()};
}

}  // namespace spillway
