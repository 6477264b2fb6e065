// SPDX-License-Identifier: Apache-2.0
#include "allocator/residency/residency.h"

#include <utility>

namespace spillway {

Result<Stash> Residency::stash(driver::DevicePtr source, Bytes size, driver::Stream producer) {
  const Leaving part{source, size};
  SPILLWAY_ASSIGN_OR_RETURN(std::vector<Stash> stashes, stash({&part, 1}, producer));
  return std::move(stashes.front());
}

Result<std::vector<Stash>> Residency::stash(std::span<const Leaving> parts,
                                            driver::Stream producer) {
  SPILLWAY_ASSIGN_OR_RETURN(std::vector<HostSlot> slots, take_slots(parts));
  std::vector<CopyOut> copies;
  for (std::size_t each = 0; each < parts.size(); ++each)
    copies.push_back({parts[each].source, &slots[each]});
  const Result<driver::Fence> written = copies_.to_host(copies, producer);
  if (!written.ok()) {
    // With the fences they came with: their former copies may still run.
    for (HostSlot& slot : slots)
      arena_.give(std::move(slot), {});
    return written.status();
  }
  std::vector<Stash> stashes;
  for (std::size_t each = 0; each < parts.size(); ++each) {
    // Elsewhere its owner keeps the source alive, as the header asks.
    heap_.add_fence(parts[each].source, written.value());
    stashed_ += parts[each].size.count();
    on_host_ += parts[each].size.count();
    ++stashes_;
    stashes.push_back({std::move(slots[each]), written.value(), false, false});
    set_away(stashes.back(), true);
  }
  return stashes;
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
                                       Haste haste) {
  const Return back{&stash, destination};
  return fetch({&back, 1}, consumer, haste);
}

Result<driver::Fence> Residency::fetch(std::span<const Return> returns,
                                       driver::Stream consumer,
                                       Haste haste) {
  std::vector<CopyIn> copies;
  for (const Return& back : returns)
    copies.push_back({&back.stash->slot, back.stash->written, back.destination});
  SPILLWAY_ASSIGN_OR_RETURN(const driver::Fence read, copies_.to_device(copies, consumer, haste));
  // The block may be freed before the copies have passed.
  heap_.add_fence(returns.front().destination, read);
  for (const Return& back : returns) {
    Stash& stash = *back.stash;
    stash.slot.fences.add(read);
    stash.fetched = true;
    fetched_ += stash.slot.size.count();
    set_away(stash, false);
  }
  ++fetches_;
  return read;
}

void Residency::set_away(Stash& stash, bool away) {
  if (stash.away == away) return;
  stash.away = away;
  if (away) {
    away_ += stash.slot.size.count();
  } else {
    away_ -= stash.slot.size.count();
  }
}

void Residency::drop(Stash stash) {
  set_away(stash, false);
  on_host_ -= stash.slot.size.count();
  if (!stash.fetched) ++dropped_;
  // Copies in come after the copy out, so it has passed when they have.
  arena_.give(std::move(stash.slot), stash.fetched ? driver::Fence{} : stash.written);
}

ResidencyStats Residency::stats() const {
  return {Bytes{stashed_.load()},
          Bytes{fetched_.load()},
          Bytes{on_host_.load()},
          Bytes{away_.load()},
          stashes_.load(),
          fetches_.load(),
          dropped_.load()};
}

}  // namespace spillway
