// SPDX-License-Identifier: Apache-2.0
#include "allocator/transfer/host_arena.h"

#include "allocator/transfer/free_ranges.h"
#include "allocator/transfer/recent_peaks.h"

#include <algorithm>
#include <iterator>
#include <string>

namespace spillway {
namespace {

using namespace literals;

constexpr Bytes kSlotUnit = 64_B;

/// The first step grows by a piece of at least kFirstPiece, at most kLargestPiece, because each
/// registration costs a call.
constexpr Bytes kFirstPiece = 8_MiB;
constexpr Bytes kLargestPiece = 256_MiB;
/// Registered bytes may exceed those in slots by a quarter. The arena grows by an eighth, so that
/// the current piece and the next one fit in that quarter.
constexpr std::uint64_t kSlack = 4;
constexpr std::uint64_t kPieces = 8;
constexpr std::uint64_t kLimitSlack = 8;
/// Later growth begins with this part of the registered bytes.
constexpr std::uint64_t kLaterPieces = 64;
/// For varying steps, a new piece is larger than their peak by this part of it.
constexpr std::uint64_t kHeadroom = 16;

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

  /// Bytes that the running step has needed so far, including fragmentation.
  [[nodiscard]] Bytes step_peak() const { return std::max(peak, with_gaps) + refused; }

  /// The size that the arena must have.
  [[nodiscard]] Bytes need() const { return std::max(recent.largest(), step_peak()); }

  /// `size`, limited to the largest piece within the limit.
  [[nodiscard]] Bytes within_limit(Bytes size) const {
    const Bytes limit = pieces.options().limit;
    if (limit.zero() || PinnedPieces::whole_pages(size) <= limit) return size;
    return PinnedPieces::whole_pages_in(limit);
  }

  /// The size of a single piece for `need`.
  [[nodiscard]] Bytes with_headroom(Bytes need) const {
    return recent.vary() ? need + Bytes{need.count() / kHeadroom} : need;
  }

  [[nodiscard]] bool too_large(Bytes need) const {
    const std::uint64_t percent = recent.vary() ? 10 : 3;
    const Bytes allowed{need.count() + need.count() * percent / 100};
    const Bytes made = PinnedPieces::whole_pages(with_headroom(need));
    return pieces.registered() > std::max(allowed, made);
  }

  [[nodiscard]] bool fits(Bytes need) const {
    return !too_large(need) && pieces.registered() >= within_limit(need) &&
           pieces.all().size() <= 1;
  }

  /// Errors: kOutOfHostMemory; nothing has changed then.
  Status add_piece(Bytes size) { return use(pieces.add(size)); }

  Status use(const Result<std::byte*>& piece) {
    if (!piece.ok()) return piece.status();
    free.add(piece.value(), pieces.all().at(piece.value()).size, piece.value(), {});
    return {};
  }

  /// The minimum size of the next piece, if room() allows it.
  [[nodiscard]] Bytes next_piece() const {
    const Bytes part{pieces.registered().count() / kPieces};
    // A step that needs a multiple of the arena's size is as unknown as a first one.
    if (sized.zero() || pieces.registered() >= sized + sized)
      return std::clamp(part, kFirstPiece, kLargestPiece);
    return std::min(part, std::max(grown, Bytes{sized.count() / kLaterPieces}));
  }

  /// Bytes that may be registered for a slot of `size` and later ones.
  [[nodiscard]] Bytes room(Bytes size) const {
    const Bytes used = out + size;
    Bytes slack = std::max(kFirstPiece, Bytes{used.count() / kSlack});
    // Close to a limit, pieces have exactly the requested size, so that no memory is wasted.
    if (const Bytes limit = pieces.options().limit; !limit.zero()) {
      const bool close = pieces.registered() + next_piece() > limit;
      slack = close ? Bytes{} : std::min(slack, Bytes{limit.count() / kLimitSlack});
    }
    const Bytes most = used + slack;
    return saturating_sub(most, pieces.registered());
  }

  /// Makes room for a slot of `size`. The pieces depend on the sizes alone, whether they were
  /// created in the background or not.
  Status grow(Bytes size) {
    const Bytes before = pieces.registered() - pieces.begun();
    const bool gaps = !sized.zero() && grown.zero() && out + size <= before;
    if (pieces.begun() < size || !use(pieces.finish()).ok()) {
      const Bytes later = gaps ? Bytes{sized.count() / kLaterPieces} : Bytes{};
      const Bytes wanted = std::max({size, std::min(next_piece(), room(size)), later});
      Status status = add_piece(wanted);
      if (!status.ok()) {
        const bool dropped = drop_begun();  // it may be the cause of exceeding a budget
        if (dropped || wanted > size) status = add_piece(size);
      }
      if (!status.ok()) refused += size;
      SPILLWAY_RETURN_IF_ERROR(status);
    }
    if (gaps) {
      with_gaps = std::max(with_gaps, before + size);
    } else {
      grown += pieces.registered() - pieces.begun() - before;
    }
    // One piece is enough for small programs: they need no thread.
    const bool more = pieces.options().ahead && sized.zero() && pieces.all().size() > 1;
    const Bytes next = next_piece();
    if (more && pieces.begun().zero() && next <= room(size)) pieces.begin(next);
    return {};
  }

  /// Returns false if there was none.
  bool drop_begun() {
    if (pieces.begun().zero()) return false;
    if (const auto piece = pieces.finish(); piece.ok()) pieces.remove(piece.value());
    return true;
  }

  /// Unregisters completely free pieces, as long as `keep` bytes stay.
  void remove_pieces(Bytes keep) {
    const std::map<std::byte*, HostPages> all = pieces.all();
    for (const auto& [piece, pages] : all) {
      if (pieces.registered() < keep + pages.size) continue;
      if (free.remove_piece(piece, pages.size)) pieces.remove(piece);
    }
  }

  /// Replaces all pieces by one for `need`. Requires: no slot is in use, all fences have passed.
  void replace_pieces(Bytes need) {
    const Bytes before = pieces.registered();
    remove_pieces(Bytes{});
    if (need.zero()) return;
    // If the machine refuses even the former size, the next step grows on demand.
    for (const Bytes size :
         {within_limit(with_headroom(need)), within_limit(need), std::min(before, need)}) {
      if (size.zero() || add_piece(size).ok()) break;
    }
    if (pieces.registered() < within_limit(need)) {
      retry_in = RecentPeaks::kSteps;
      retry_above = need;
    }
  }

  /// Resizes for `need`, as far as that is possible without blocking.
  bool resize(Bytes need) {
    drop_begun();
    if (!out.zero()) {
      if (too_large(need)) remove_pieces(need);
    } else if (!fits(need)) {
      free.forget_passed_fences();
      if (!free.fenced().zero()) return false;
      replace_pieces(need);
    }
    if (too_large(need)) return false;
    sized = pieces.registered() >= within_limit(need) ? pieces.registered() : Bytes{};
    grown = Bytes{};
    return true;
  }

  /// Waits if only fences prevent the resize.
  bool resize_sync(Bytes need) {
    if (resize(need)) return true;
    // With slots in use, waiting for fences is not enough.
    if (!out.zero() || !free.wait_for_fences_sync().ok()) return false;
    return resize(need);
  }

  void end_step(std::uint64_t shape) {
    recent.add(shape, step_peak(), !refused.zero());
    begin_step();
    const Bytes need = recent.largest();
    if (retry_in > 0 && need <= retry_above && --retry_in > 0) return;
    if (!fits(need) || sized.zero()) resize_sync(need);
  }

  void begin_step() {
    peak = out;
    with_gaps = refused = grown = Bytes{};
  }

  Mutex mutex;  // for all members below; the functions above require it
  PinnedPieces pieces;
  FreeRanges free;
  RecentPeaks recent;
  Bytes out;
  // Of the running step.
  Bytes peak;       // of `out`
  Bytes with_gaps;  // memory including the gaps between its slots; zero without gaps
  Bytes refused;
  Bytes grown;  // because its peak exceeded the registered bytes
  Bytes sized;  // registered bytes when the arena was sized for steps; zero: not yet
  // After a refusal by the machine: steps until that size is retried, unless more is needed.
  std::size_t retry_in = 0;
  Bytes retry_above;
};

HostSlot& HostSlot::operator=(HostSlot&& other) noexcept {
  if (this == &other) return *this;
  if (arena_ != nullptr) release();
  fences = std::move(other.fences);
  arena_ = std::exchange(other.arena_, nullptr);
  bytes_ = std::exchange(other.bytes_, {});
  return *this;
}

void HostSlot::release() {
  arena_->give(bytes_, std::move(fences));
}

HostArena::HostArena(const driver::Device& device, const PinnedOptions& options)
    : state_(std::make_unique<State>(device, options)) {}

HostArena::HostArena(const driver::Device& device, Bytes limit)
    : HostArena(device, limited_to(limit)) {}

HostArena::~HostArena() {
  SPILLWAY_CHECK(state_->out.zero());
}

Result<HostSlot> HostArena::take(Bytes size) {
  if (size > kNoMachineHasThis) {
    return SPILLWAY_ERROR(
        Code::kOutOfHostMemory,
        readable(size) +
            " of host memory cannot be allocated: no machine has that much. Offload less.");
  }
  const Bytes room = rounded(size);
  const Lock lock(state_->mutex);
  auto range = state_->free.take(room);
  if (!range) {
    SPILLWAY_RETURN_IF_ERROR(state_->grow(room));
    range = state_->free.take(room);
  }
  SPILLWAY_CHECK(range.has_value());
  state_->out += room;
  state_->peak = std::max(state_->peak, state_->out);
  return HostSlot(*this, {range->at, size}, std::move(range->fences));
}

void HostArena::give(HostBytes bytes, driver::FenceSet fences) {
  const Bytes room = rounded(bytes.size);
  const Lock lock(state_->mutex);
  const auto& pieces = state_->pieces.all();
  const auto after = pieces.upper_bound(bytes.data);
  SPILLWAY_CHECK(after != pieces.begin());
  state_->out -= room;
  state_->free.add(bytes.data, room, std::prev(after)->first, std::move(fences));
}

void HostArena::end_step(std::uint64_t shape) {
  const Lock lock(state_->mutex);
  state_->end_step(shape);
}

bool HostArena::trim() {
  const Lock lock(state_->mutex);
  return state_->resize(state_->need());
}

bool HostArena::trim_sync() {
  const Lock lock(state_->mutex);
  return state_->resize_sync(state_->need());
}

HostArenaStats HostArena::stats() const {
  const Lock lock(state_->mutex);
  state_->free.forget_passed_fences();
  const PinnedPieces& pieces = state_->pieces;
  HostArenaStats stats;
  stats.registered = pieces.registered();
  stats.registered_peak = pieces.registered_peak();
  stats.in_slots = state_->in_slots();
  stats.in_slots_peak = std::max(state_->recent.largest(), state_->peak);
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
  state_->recent.clear();
  state_->begin_step();
}

}  // namespace spillway
