// SPDX-License-Identifier: Apache-2.0
#include "allocator/transfer/host_arena.h"

#include "allocator/transfer/free_ranges.h"
#include "allocator/transfer/pinned_pieces.h"

#include <algorithm>
#include <iterator>
#include <string>

namespace spillway {
namespace {

using namespace literals;

constexpr Bytes kSlotUnit = 64_B;

/// What the arena grows by at least, until it knows what a step needs: registration costs a call
/// each time.
constexpr Bytes kFirstPieces = 8_MiB;
/// Afterwards, as a part of what is registered: less than what trim() lets stand.
constexpr std::uint64_t kLaterPieces = 64;

Bytes rounded(Bytes size) {
  return std::max(size, kSlotUnit).rounded_up(kSlotUnit);
}

}  // namespace

struct HostArena::State {
  State(const driver::Device& device, Bytes limit) : pieces(device, limit) {}

  [[nodiscard]] Bytes in_slots() const { return out + free.fenced(); }

  [[nodiscard]] bool fits() const {
    const Bytes allowed{peak.count() + peak.count() * 3 / 100};
    return pieces.registered() <= std::max(allowed, PinnedPieces::whole_pages(peak));
  }

  /// Errors: kOutOfHostMemory; nothing has changed then.
  Status add_piece(Bytes size) {
    SPILLWAY_ASSIGN_OR_RETURN(std::byte * piece, pieces.add(size));
    free.add(piece, PinnedPieces::whole_pages(size), piece, {});
    return {};
  }

  /// Makes room for a slot of `size`.
  Status grow(Bytes size) {
    const Bytes part{pieces.registered().count() / kLaterPieces};
    const Bytes wanted = std::max(size, trimmed ? part : kFirstPieces);
    if (wanted > size && add_piece(wanted).ok()) return {};
    return add_piece(size);
  }

  /// Frees pieces that are wholly free, as long as `keep` bytes stay.
  void remove_pieces(Bytes keep) {
    const std::map<std::byte*, HostPages> all = pieces.all();
    for (const auto& [piece, pages] : all) {
      if (pieces.registered() < keep + pages.size) continue;
      if (free.remove_piece(piece, pages.size)) pieces.remove(piece);
    }
  }

  bool trim() {
    free.forget_passed_fences();
    const bool idle = out.zero();
    // Several pieces may hold a step's slots when they grow with it and not when they are all there
    // at its start. One piece holds them without gaps.
    if (idle && !(fits() && pieces.all().size() <= 1)) {
      if (!free.fenced().zero()) return false;
      remove_pieces(Bytes{});
      // Where the machine refuses the piece, the next step grows as it needs.
      if (!peak.zero()) static_cast<void>(add_piece(peak).ok());
    }
    if (!idle && !fits()) remove_pieces(peak);
    if (!fits()) return false;
    trimmed = !peak.zero() && pieces.registered() >= peak;
    return true;
  }

  Mutex mutex;  // of all that follows; the functions above require it
  PinnedPieces pieces;
  FreeRanges free;
  Bytes out;
  Bytes peak;
  bool trimmed = false;  // the arena knows what a step needs
};

HostArena::HostArena(const driver::Device& device, Bytes limit)
    : state_(std::make_unique<State>(device, limit)) {}

HostArena::~HostArena() {
  SPILLWAY_CHECK(state_->out.zero());
}

Result<HostSlot> HostArena::take(Bytes size) {
  if (size > kNoMachineHasThis) {
    return SPILLWAY_ERROR(Code::kOutOfHostMemory,
                          std::to_string(size.count()) + " bytes: no machine has that much");
  }
  const Bytes room = rounded(size);
  const Lock lock(state_->mutex);
  auto place = state_->free.take(room);
  if (!place) {
    SPILLWAY_RETURN_IF_ERROR(state_->grow(room));
    place = state_->free.take(room);
  }
  SPILLWAY_CHECK(place.has_value());
  state_->out += room;
  state_->peak = std::max(state_->peak, state_->in_slots());
  return HostSlot{place->at, size, std::move(place->fences)};
}

void HostArena::give(HostSlot slot, driver::Fence last) {
  add_fence(slot.fences, last);
  const Bytes room = rounded(slot.size);
  const Lock lock(state_->mutex);
  const auto& pieces = state_->pieces.all();
  const auto after = pieces.upper_bound(slot.data);
  SPILLWAY_CHECK(after != pieces.begin());
  state_->out -= room;
  state_->free.add(slot.data, room, std::prev(after)->first, std::move(slot.fences));
}

bool HostArena::trim() {
  const Lock lock(state_->mutex);
  return state_->trim();
}

bool HostArena::trim_sync() {
  const Lock lock(state_->mutex);
  if (state_->trim()) return true;
  // With slots out there is more in the way than fences.
  if (!state_->out.zero() || !state_->free.wait_for_fences_sync().ok()) return false;
  return state_->trim();
}

HostArenaStats HostArena::stats() const {
  const Lock lock(state_->mutex);
  state_->free.forget_passed_fences();
  const PinnedPieces& pieces = state_->pieces;
  HostArenaStats stats;
  stats.registered = pieces.registered();
  stats.registered_peak = pieces.registered_peak();
  stats.in_slots = state_->in_slots();
  stats.in_slots_peak = state_->peak;
  stats.registrations = pieces.registrations();
  stats.node = pieces.node();
  for (const auto& [piece, pages] : pieces.all()) {
    if (pages.huge) stats.huge += pages.size;
    if (pages.advised) stats.advised += pages.size;
    if (pages.on_node) stats.on_node += pages.size;
  }
  return stats;
}

void HostArena::reset_peak() {
  const Lock lock(state_->mutex);
  state_->free.forget_passed_fences();
  state_->peak = state_->in_slots();
}

}  // namespace spillway
