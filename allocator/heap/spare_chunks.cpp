// SPDX-License-Identifier: Apache-2.0
#include "allocator/heap/spare_chunks.h"

#include <algorithm>

namespace spillway {

bool SpareChunks::keep(const Chunk& chunk) {
  if (scopes_ == 0 || chunk.exported) return false;
  chunks_.push_back(chunk);
  return true;
}

std::optional<Chunk> SpareChunks::take(Bytes size) {
  auto found = chunks_.rend();
  for (auto each = chunks_.rbegin(); each != chunks_.rend(); ++each) {
    if (each->size > size) continue;
    if (found == chunks_.rend() || each->size > found->size) found = each;
    if (each->size == size) break;
  }
  // Each chunk costs calls to the driver, as often as it moves.
  if (found == chunks_.rend() || found->size + found->size < size) return std::nullopt;
  const Chunk chunk = *found;
  *found = chunks_.back();
  chunks_.pop_back();
  return chunk;
}

void SpareChunks::make_room(Bytes size) {
  for (Bytes released; released < size && !chunks_.empty();) {
    released += chunks_.back().size;
    release_last();
  }
}

void SpareChunks::release_all() {
  while (!chunks_.empty())
    release_last();
}

void SpareChunks::release_last() {
  const Chunk chunk = chunks_.back();
  chunks_.pop_back();
  if (release(chunk)) return accounting_.unmapped({}, 1);
  accounting_.stuck(chunk.size);
}

bool SpareChunks::release(const Chunk& chunk) {
  const driver::CurrentDevice current(*device_.api, device_.context);
  const driver::OutsideCaptures outside(*device_.api);
  if (device_.api->MemRelease(chunk.handle) == CUDA_SUCCESS) return true;
  lost_ += chunk.size;
  return false;
}

}  // namespace spillway
