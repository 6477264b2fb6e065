// SPDX-License-Identifier: Apache-2.0
#include "allocator/transfer/host_arena.h"

#include "allocator/transfer/free_ranges.h"

#include <algorithm>
#include <iterator>
#include <string>

namespace spillway {
namespace {

using namespace literals;

constexpr Bytes kSlotUnit = 64_B;

/// What the arena grows by at least, until it knows what a step needs: registration costs a call
/// each time. Each piece is twice as large as the one before.
constexpr Bytes kFirstPiece = 8_MiB;
constexpr Bytes kLargestPiece = 256_MiB;
/// Afterwards, as a part of what is registered: less than what trim() lets stand.
constexpr std::uint64_t kLaterPieces = 64;

Bytes rounded(Bytes size) {
  return std::max(size, kSlotUnit).rounded_up(kSlotUnit);
}

PinnedOptions limited_to(Bytes limit) {
  PinnedOptions options;
  options.limit = limit;
  return options;
}

}  // namespace

struct HostArena::State {
  State(const driver::Device& device, const PinnedOptions& options) : pieces(device, options) {}

  [[nodiscard]] Bytes in_slots() const { return out + free.fenced(); }

  [[nodiscard]] bool fits() const {
    const Bytes allowed{peak.count() + peak.count() * 3 / 100};
    return pieces.registered() <= std::max(allowed, PinnedPieces::whole_pages(peak));
  }

  /// Errors: kOutOfHostMemory; nothing has changed then.
  Status add_piece(Bytes size) { return use(pieces.add(size)); }

  Status use(const Result<std::byte*>& piece) {
    if (!piece.ok()) return piece.status();
    free.add(piece.value(), pieces.all().at(piece.value()).size, piece.value(), {});
    return {};
  }

  /// What the next piece has at least.
  [[nodiscard]] Bytes next_piece() const {
    if (trimmed) return Bytes{pieces.registered().count() / kLaterPieces};
    Bytes next = kFirstPiece;
    for (std::size_t each = 0; each < pieces.all().size() && next < kLargestPiece; ++each)
      next += next;
    return next;
  }

  /// Makes room for a slot of `size`. Which pieces there are depends on the sizes alone, whether
  /// they were made in the background or not.
  Status grow(Bytes size) {
    if (pieces.begun() < size || !use(pieces.finish()).ok()) {
      const Bytes wanted = std::max(size, next_piece());
      Status status = add_piece(wanted);
      if (!status.ok()) {
        const bool dropped = drop_begun();  // it may be what exceeds a budget
        if (dropped || wanted > size) status = add_piece(size);
      }
      SPILLWAY_RETURN_IF_ERROR(status);
    }
    // One piece is enough for small programs: they need no thread.
    const bool more = pieces.options().ahead && !trimmed && pieces.all().size() > 1;
    if (more && pieces.begun().zero()) pieces.begin(next_piece());
    return {};
  }

  /// Returns false where there was none.
  bool drop_begun() {
    if (pieces.begun().zero()) return false;
    if (const auto piece = pieces.finish(); piece.ok()) pieces.remove(piece.value());
    return true;
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
    drop_begun();
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

HostArena::HostArena(const driver::Device& device, const PinnedOptions& options)
    : state_(std::make_unique<State>(device, options)) {}

HostArena::HostArena(const driver::Device& device, Bytes limit)
    : HostArena(device, limited_to(limit)) {}

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
  slot.fences.add(last);
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
  stats.refused = pieces.refusals();
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
