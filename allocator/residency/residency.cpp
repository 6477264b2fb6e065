// SPDX-License-Identifier: Apache-2.0
#include "allocator/residency/residency.h"

#include <utility>

namespace spillway {

Result<Stash> Residency::stash(driver::DevicePtr source, Bytes size, driver::Stream producer) {
  SPILLWAY_ASSIGN_OR_RETURN(HostSlot slot, arena_.take(size));
  const Result<driver::Fence> written = copies_.to_host(source, slot, producer);
  if (!written.ok()) {
    // With the fences that it had: its earlier copies may still run.
    arena_.give(std::move(slot), {});
    return written.status();
  }
  return leaves(source, std::move(slot), written.value());
}

Result<std::vector<Stash>> Residency::stash(std::span<const Leaving> parts,
                                            driver::Stream producer) {
  SPILLWAY_ASSIGN_OR_RETURN(std::vector<HostSlot> slots, take_slots(parts));
  std::vector<CopyOut> copies;
  for (std::size_t each = 0; each < parts.size(); ++each)
    copies.push_back({parts[each].source, &slots[each]});
  const Result<driver::Fence> written = copies_.to_host(copies, producer);
  if (!written.ok()) {
    for (HostSlot& slot : slots)
      arena_.give(std::move(slot), {});
    return written.status();
  }
  std::vector<Stash> stashes;
  for (std::size_t each = 0; each < parts.size(); ++each)
    stashes.push_back(leaves(parts[each].source, std::move(slots[each]), written.value()));
  return stashes;
}

Stash Residency::leaves(driver::DevicePtr source, HostSlot slot, driver::Fence written) {
  // Elsewhere its owner keeps the source alive, as the header requires.
  const bool in_heap = heap_.add_fence(source, written);
  stashed_ += slot.size.count();
  on_host_ += slot.size.count();
  ++stashes_;
  Stash stash{std::move(slot), written, false, false, in_heap};
  set_offloaded(stash, true);
  return stash;
}

Result<std::vector<HostSlot>> Residency::take_slots(std::span<const Leaving> parts) {
  std::vector<HostSlot> slots;
  for (const Leaving& part : parts) {
    Result<HostSlot> slot = arena_.take(part.size);
    if (!slot.ok()) {
      for (HostSlot& taken : slots)
        arena_.give(std::move(taken), {});
      return slot.status();
    }
    slots.push_back(std::move(slot).value());
  }
  return slots;
}

Result<driver::Fence> Residency::fetch(Stash& stash,
                                       driver::DevicePtr destination,
                                       driver::Stream consumer,
                                       CopyPriority priority) {
  SPILLWAY_ASSIGN_OR_RETURN(
      const driver::Fence read,
      copies_.to_device(stash.slot, stash.written, destination, consumer, priority));
  heap_.add_fence(destination, read);
  is_fetched(stash, read);
  ++fetches_;
  return read;
}

Result<driver::Fence> Residency::fetch(std::span<const Return> returns,
                                       driver::Stream consumer,
                                       CopyPriority priority) {
  std::vector<CopyIn> copies;
  for (const Return& back : returns)
    copies.push_back({&back.stash->slot, back.stash->written, back.destination});
  SPILLWAY_ASSIGN_OR_RETURN(const driver::Fence read,
                            copies_.to_device(copies, consumer, priority));
  // The block may be freed before the copies have passed.
  heap_.add_fence(returns.front().destination, read);
  for (const Return& back : returns)
    is_fetched(*back.stash, read);
  ++fetches_;
  return read;
}

void Residency::is_fetched(Stash& stash, driver::Fence read) {
  stash.slot.fences.add(read);
  stash.fetched = true;
  fetched_ += stash.slot.size.count();
  set_offloaded(stash, false);
}

void Residency::set_offloaded(Stash& stash, bool offloaded) {
  if (stash.offloaded == offloaded) return;
  stash.offloaded = offloaded;
  if (offloaded) {
    offloaded_ += stash.slot.size.count();
  } else {
    offloaded_ -= stash.slot.size.count();
  }
}

void Residency::drop(Stash stash) {
  set_offloaded(stash, false);
  on_host_ -= stash.slot.size.count();
  if (!stash.fetched) ++dropped_;
  // Copies in come after the copy out, so it has passed when they have.
  arena_.give(std::move(stash.slot), stash.fetched ? driver::Fence{} : stash.written);
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
