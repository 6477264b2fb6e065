// SPDX-License-Identifier: Apache-2.0
#include "allocator/heap/spare_chunks.h"

#include <algorithm>
#include <iterator>
#include <tuple>

namespace spillway {

void SpareChunks::add(const Chunk& chunk) {
  if (keeps(chunk) || !release(chunk)) {
    chunks_.push_back(chunk);
    if (scopes_ == 0) accounting_.keep_reserved(chunk.size);
  }
}

std::optional<Chunk> SpareChunks::take(Bytes size, Bytes more, const User& user) {
  const auto found = best(chunks_, size, user);
  if (found == chunks_.end()) return std::nullopt;
  // Each chunk costs calls to the driver, as often as it moves; to make room may cost a wait.
  const bool makes_room = accounting_.has_target() && !has_room(more);
  if (found->size + found->size < size && !makes_room) return std::nullopt;
  const Chunk chunk = *found;
  chunks_.erase(found);
  return chunk;
}

/// The chunk for `size` bytes; the end iterator if all are larger.
std::vector<Chunk>::iterator SpareChunks::best(std::vector<Chunk>& chunks,
                                               Bytes size,
                                               const User& user) {
  // Smaller ones cost more calls to the driver, which is less than a wait.
  const auto place = [&](const Chunk& chunk) {
    const bool is_small = chunk.size + chunk.size < size;
    return std::tuple(is_small, last_point(chunk, user), size - chunk.size);
  };
  auto found = chunks.end();
  for (auto each = chunks.begin(); each != chunks.end(); ++each) {
    if (each->size > size || each->exported) continue;
    if (found == chunks.end() || place(*each) < place(*found)) found = each;
  }
  return found;
}

driver::FenceSet SpareChunks::uses_by_others(const Chunk& chunk, const User& user) {
  driver::FenceSet uses;
  for (const driver::Fence use : chunk.uses)
    if (!user || use.timeline->stream() != *user) uses.add(use);
  return uses;
}

/// The latest point that the user has to wait for; 0 if there is none.
std::uint64_t SpareChunks::last_point(const Chunk& chunk, const User& user) {
  return uses_by_others(chunk, user).last_point();
}

Bytes SpareChunks::surplus(Bytes size, Bytes most, const User& user) const {
  if (!accounting_.has_target() || has_room(size)) return {};
  // What take() is going to give.
  std::vector<Chunk> chunks = chunks_;
  Bytes made;
  for (Bytes left = size; !left.zero();) {
    const Bytes wanted = std::min(left, most);
    const bool makes_room = !has_room(made + wanted);
    const auto found = best(chunks, wanted, user);
    if (found != chunks.end() && (makes_room || found->size + found->size >= wanted)) {
      left -= found->size;
      chunks.erase(found);
    } else if (!makes_room) {
      left -= wanted;
      made += wanted;
    } else {
      const auto larger =
          std::min_element(chunks.begin(), chunks.end(), [&](const Chunk& one, const Chunk& other) {
            return std::pair(last_point(one, user), one.size) <
                   std::pair(last_point(other, user), other.size);
          });
      return larger == chunks.end() || larger->size > most ? Bytes() : larger->size - wanted;
    }
  }
  return {};
}

bool SpareChunks::has_room(Bytes size) const {
  const bool has_budget = !accounting_.budget().zero();
  return bytes() + size <= (has_budget ? accounting_.room() : accounting_.room_to_target());
}

void SpareChunks::make_room(Bytes size) {
  while (!has_room(size) && release_one(Wait::kAllowed)) {
  }
}

void SpareChunks::begin_scope() {
  formers_.look_again();
  accounting_.unmapped(bytes(), 0);
}

void SpareChunks::end_scope() {
  const bool has_target = accounting_.has_target();
  while (!has_target || accounting_.passes_target(bytes()))
    if (!release_one(has_target ? Wait::kNever : Wait::kAllowed)) break;
  accounting_.keep_reserved(bytes());
  formers_.clear_passed();
}

Bytes SpareChunks::trim() {
  if (scopes_ > 0) return {};
  const Bytes before = bytes() + lost_;
  begin_scope();
  while (release_one(Wait::kAllowed)) {
  }
  accounting_.keep_reserved(bytes());
  return before - (bytes() + lost_);
}

Bytes SpareChunks::bytes() const {
  Bytes all;
  for (const Chunk& chunk : chunks_)
    all += chunk.size;
  return all;
}

/// Releases a chunk, the latest one whose former mappings the device does not use if there is one.
/// False if none can be released.
bool SpareChunks::release_one(Wait wait) {
  for (const bool in_use : {false, true}) {  // it may pass meanwhile
    if (in_use && wait == Wait::kNever) return false;
    for (auto each = chunks_.rbegin(); each != chunks_.rend(); ++each) {
      if ((!in_use && formers_.in_use(each->handle)) || !release(*each)) continue;
      chunks_.erase(std::prev(each.base()));
      return true;
    }
  }
  return false;
}

/// False if a former mapping cannot end; nothing is released then.
bool SpareChunks::release(const Chunk& chunk) {
  if (!formers_.clear(chunk.handle).ok()) return false;
  const driver::CurrentDevice current(*device_.api, device_.context);
  const driver::OutsideCaptures outside(*device_.api);
  if (device_.api->MemRelease(chunk.handle) == CUDA_SUCCESS) {
    accounting_.unmapped({}, 1);
  } else {
    lost_ += chunk.size;
    accounting_.keep_reserved(chunk.size);
  }
  return true;
}

}  // namespace spillway
