// SPDX-License-Identifier: Apache-2.0
#include "allocator/residency/residency.h"

#include "allocator/transfer/free_ranges.h"

#include <utility>

namespace spillway {

Result<Stash> Residency::stash(driver::DevicePtr source, Bytes size, driver::Stream producer) {
  SPILLWAY_ASSIGN_OR_RETURN(HostSlot slot, arena_.take(size));
  const Result<driver::Fence> written = copies_.to_host(source, slot, producer);
  if (!written.ok()) {
    arena_.give(std::move(slot),
                {});  // with the fences it came with: its former copies may still run
    return written.status();
  }
  heap_.add_fence(
      source, written.value());  // elsewhere its owner keeps the source alive, as the header asks

  stashed_ += size.count();
  on_host_ += size.count();
  ++stashes_;
  Stash stash{std::move(slot), written.value(), false, false};
  set_away(stash, true);
  return stash;
}

Result<driver::Fence> Residency::fetch(Stash& stash,
                                       driver::DevicePtr destination,
                                       driver::Stream consumer,
                                       Haste haste) {
  SPILLWAY_ASSIGN_OR_RETURN(
      const driver::Fence read,
      copies_.to_device(stash.slot, stash.written, destination, consumer, haste));
  heap_.add_fence(destination, read);  // the block may be freed before the copy has passed
  add_fence(stash.slot.fences, read);
  stash.fetched = true;
  fetched_ += stash.slot.size.count();
  ++fetches_;
  set_away(stash, false);
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
